"""Rollout workers on a Ray cluster."""
