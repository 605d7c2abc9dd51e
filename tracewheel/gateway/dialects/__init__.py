"""The dialects of the door: what a vendor's clients send becomes a `ChatRequest`, and a `ChatReply` what they expect."""
