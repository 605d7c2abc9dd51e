"""The policy update: one learner for every algorithm, on stored multi-turn trajectories."""
