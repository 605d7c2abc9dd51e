"""Log-probabilities of action tokens: packed rows, attention within segments, a fused output embedding."""
