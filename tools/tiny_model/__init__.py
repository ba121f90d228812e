"""Makes the embedded models `tiny` and `tiny-teacher` from data that it generates."""
