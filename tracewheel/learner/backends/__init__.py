"""The processes an update runs on: one optimiser over one process or many."""
