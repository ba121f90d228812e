"""The HTTP calls that plugins make for themselves: seen, held back, answered, changed.

`exchange` has the records and the `TrafficRule` seam, `patches` puts rules between a plugin and the
client libraries it uses, `passage` takes one call through them; a module for each library has what
is its own. The libraries are no dependencies: a module is loaded when a plugin imports its library.
"""
