"""What the pytest plugin's fixtures are made of."""
