"""The HTTP calls that plugins make for themselves: seen, held back, answered, changed.

`exchange` has the records and the `TrafficRule` seam, `patches` the adapters that put rules between
a plugin and the client libraries it uses (httpx, httpx2, aiohttp, requests).
"""
