"""The image of a function: its layers, its build, its output."""
