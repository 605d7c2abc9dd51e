"""The quality report of a curated data set."""
