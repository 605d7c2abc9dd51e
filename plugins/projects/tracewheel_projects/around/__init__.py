"""What is around a program that is an agent: its tasks, and the check of what it says."""
