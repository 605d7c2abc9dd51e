"""Logs of other programs: read record by record, redacted, quarantined where unreadable, stored as `Trace` records."""
