"""Rollouts, grading, verdicts, statistics."""
