"""Unattended retraining: what is new in the logs, and which batches are held."""
