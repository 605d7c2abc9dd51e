"""Files of the work folder only."""
