"""Studies on what Tracewheel records: what a policy would score, reward models, merges, exports, replays of the past."""
