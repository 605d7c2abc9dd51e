"""Episodes of programs that bring their own loop: how they are started, watched and ended, and the environment beside them."""
