"""A policy for other programs: as an adapter or as one model, with a card that says how it came about."""
