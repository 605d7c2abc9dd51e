"""Taking somebody out of everything that was made of the logs, and the proof that nothing of theirs is left."""
