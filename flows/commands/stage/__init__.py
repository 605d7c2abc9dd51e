"""Single stages, as dvc.yaml calls them."""
