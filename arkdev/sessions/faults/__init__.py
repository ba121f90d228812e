"""Faults that a test injects (``--inject``): what may be asked for, when it strikes, what it does.

`grammar` reads the flag, `plan` draws, `answers` changes what a model or a service said, `traffic`
acts on the HTTP calls of plugins. Model calls are acted on by `arkdev.sessions.sends`, the calls of
plugins by `arkdev.harness.faulty_host`.
"""
