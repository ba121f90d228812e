"""Instances that are child processes, and the environments that uv makes for them."""
