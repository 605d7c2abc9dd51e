"""Readers of other programs' logs: agents, frameworks, tracers, providers and data sets."""
