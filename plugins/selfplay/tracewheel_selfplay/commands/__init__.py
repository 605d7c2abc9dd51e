"""The wheel's commands, a file each."""
