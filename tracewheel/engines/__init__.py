"""Engines: what turns token ids into sampled turns."""
