"""The command `runs labels`."""
