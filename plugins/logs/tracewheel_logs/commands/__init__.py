"""Commands of the wheel."""
