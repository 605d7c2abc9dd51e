"""A deployed agent's logs in any world, and how the tiny base policy is made; nothing else depends on it."""
