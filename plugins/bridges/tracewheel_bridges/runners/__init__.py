"""Scripts that run in the Python of another project; nothing here is imported by Tracewheel."""
