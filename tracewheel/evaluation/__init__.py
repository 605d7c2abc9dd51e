"""What a policy is worth, and whether it is promoted."""
