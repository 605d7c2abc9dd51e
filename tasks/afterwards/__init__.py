"""What is done to finished runs: taking traces out, making again, targets of lineage."""
