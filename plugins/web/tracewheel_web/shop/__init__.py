"""An example site, a small shop, with tasks."""
