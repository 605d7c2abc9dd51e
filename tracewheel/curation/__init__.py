"""From logged traces to tasks and episodes: pure steps on pandas frames, one a file."""
