"""An outcome reward model: what verified trajectories teach about those that nothing verifies."""
