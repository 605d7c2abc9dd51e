"""Unattended retraining: what is new in the logs, whether a run is worth it, and which batches are held."""
