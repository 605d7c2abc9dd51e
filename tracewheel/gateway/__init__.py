"""One door for agents that bring their own loop, and for serving: the installed dialects over one tree of tokens."""
