"""What runs in Flower's own environment: it imports Flower, numpy and the standard library, never Tracewheel."""
