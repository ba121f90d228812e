"""Tapes: what a run got from outside itself, so that the plugins' code can run again without it.

`format` reads and writes the file, `redaction` keeps secrets off it, `recording` and `replay` are
the two uses of it. The rest is what stands between a plugin and the outside, each for both uses:
`model_calls`, `http_calls`, `mcp_calls`, `clock`, `randomness` (docs/tape.md).
"""
