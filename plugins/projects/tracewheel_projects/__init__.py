"""New projects: a small complete one, one around a program, one from a log file. `tracewheel init` writes them."""
