"""Federated training: several houses, one adapter; only adapters and counts travel, over Flower."""
