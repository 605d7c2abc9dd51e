"""A run in figures and words: its results, DVC's figures, the glossary of metrics, notes and model cards."""
