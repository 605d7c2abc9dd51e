"""The ground floor: records, errors, files, the store, fingerprints, statistics."""
