"""What is done to finished runs: forgetting, reproduction, data versions."""
