"""Trajectories and traces in the formats of other projects. Each writer is a pure function from records to JSON types."""
