"""Lineage: from an adapter back to the log lines it learned from, and from a trace forward to everything that holds it."""
