"""Servers of the Model Context Protocol as the tools of an episode."""
