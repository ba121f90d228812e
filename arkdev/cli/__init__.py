"""Typer commands: parse, call, print."""
