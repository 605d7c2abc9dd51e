"""Direct preference optimisation on an iteration's own rollouts."""
