"""Models behind an OpenAI-compatible endpoint as players of tasks: their episodes, what is kept of them, what they cost."""
