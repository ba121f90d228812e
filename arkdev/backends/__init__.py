"""Who trains: a backend turns groups into a better policy, here or elsewhere."""
