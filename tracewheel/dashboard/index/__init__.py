"""An index over the episodes of a work folder: full-text search, filters and the history of tasks over all runs.

It is a cache in `.dashboard/` of the work folder: it may be deleted at any time, no run reads it, and `tracewheel forget`
deletes it whole, as it holds what people wrote.
"""
