"""Web agents: environments in a real browser."""
