"""Advantages: how much better a trajectory, a turn or a token did than expected. One algorithm per file."""
