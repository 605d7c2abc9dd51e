"""Look after the runs of a work folder: state, records, reports, disk."""
