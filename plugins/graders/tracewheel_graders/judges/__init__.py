"""LLM judges: criteria in, marks out, and what is done so that the judged text stays data."""
