"""How the shipped logs and the tiny base policy are made; nothing else depends on it."""
