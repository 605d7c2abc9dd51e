"""Rollouts: episodes token in and token out, one process or a fleet of workers behind a queue."""
