"""Tool-call formats of other model families than those that the core's profiles train."""
