"""Verifiers, rubrics and rewards: what an episode is worth."""
