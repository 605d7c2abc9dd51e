"""The warm start: demonstrations chosen, tokenised and imitated."""
