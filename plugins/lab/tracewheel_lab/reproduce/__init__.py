"""A finished run beside the same run made again: the code and data to make it with, and where the two part."""
