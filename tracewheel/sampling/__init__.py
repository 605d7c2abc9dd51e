"""Which tasks an iteration rolls out: sampler, curriculum, dynamic sampling, seeds."""
