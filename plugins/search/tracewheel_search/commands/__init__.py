"""The commands of the wheel."""
