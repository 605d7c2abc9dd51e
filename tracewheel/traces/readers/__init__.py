"""Readers of trace logs, one file for each format."""
