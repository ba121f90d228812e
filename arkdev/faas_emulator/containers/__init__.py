"""Instances that are containers."""
