"""Commands of this wheel."""
