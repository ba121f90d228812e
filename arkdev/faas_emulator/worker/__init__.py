"""What runs inside an instance: an HTTP server that calls one plugin.

It is small and starts fast: the standard library and what `arkdev.plugin` needs, Python 3.10 too.
"""
