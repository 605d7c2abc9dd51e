"""What a finished run leaves: report, summary, lineage."""
