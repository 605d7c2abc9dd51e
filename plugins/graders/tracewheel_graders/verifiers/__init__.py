"""Verifiers of answers and of what an episode did and cost, without a model."""
