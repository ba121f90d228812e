"""One folder per run: the only writer and the only reader."""
