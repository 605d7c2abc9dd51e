"""How a command prints: cards, progress, encoding, summary."""
