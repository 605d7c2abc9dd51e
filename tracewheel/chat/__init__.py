"""Chat formats: from messages to token ids, and from text to tool calls."""
