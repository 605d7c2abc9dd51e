"""Where traces live, beside files: sources for `tracewheel ingest`, and a receiver of OpenTelemetry."""
