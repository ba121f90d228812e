"""job.yaml / job.py models and dataset forms."""
