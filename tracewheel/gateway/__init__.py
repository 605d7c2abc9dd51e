"""One door for agents that bring their own loop, and for serving: three dialects over one tree of tokens."""
