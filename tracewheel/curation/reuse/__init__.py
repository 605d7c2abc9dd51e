"""Results of earlier curations, by trace and by task, which later ones reuse."""
