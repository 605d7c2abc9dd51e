"""Self-play and self-reward: who proposes decides nothing, and who rewards itself is stopped in time."""
