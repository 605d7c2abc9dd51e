"""Work on data sets: make tasks, record an environment, compare, filter, report."""
