"""The commands of this wheel, one a file."""
