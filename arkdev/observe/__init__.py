"""Tracing names, plugin logs."""
