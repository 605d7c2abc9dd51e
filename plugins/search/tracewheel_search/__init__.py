"""Tree search over turns, preference pairs from trees, and process rewards."""
