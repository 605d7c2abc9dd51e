"""A small agent of your own: its world and the check of its work."""
