"""Container engines: where they are, what they run, networks, and who owns what is left."""
