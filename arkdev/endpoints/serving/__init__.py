"""What every model that arkdev serves over HTTP has in common: routes, keys, checks, events."""
