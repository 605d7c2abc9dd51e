"""Models behind an OpenAI-compatible endpoint on tasks: their episodes, what is kept of them, and their cost."""
