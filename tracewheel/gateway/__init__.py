"""One door for agents that bring their own loop, and for serving: four dialects over one tree of tokens."""
