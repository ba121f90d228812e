"""Training on this machine. Its leaf modules need the extra ``local`` and are loaded lazily."""
