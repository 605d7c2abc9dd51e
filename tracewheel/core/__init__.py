"""Ground for all rooms: records, errors, files, the store, fingerprints, statistics."""
