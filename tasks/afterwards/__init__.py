"""What is done to finished runs: forgetting, making again, targets of lineage."""
