"""Chat formats: messages to token ids and back to calls."""
