"""Policies on disk: adapters and whole models, how they are loaded, merged and probed."""
