"""Models behind an OpenAI-compatible endpoint on tasks: their episodes, the demonstrations from them, and their cost."""
