"""What a project begins with: its folder, from nothing, around a program or from a log; and tasks where there are no logs."""
