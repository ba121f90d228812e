"""Compositions: the only code that sees every layer below."""
