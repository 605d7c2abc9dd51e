"""Which tasks an iteration rolls out: sampler, curriculum, schedule, specialists."""
