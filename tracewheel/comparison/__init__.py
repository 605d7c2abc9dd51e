"""Finished runs side by side, and a run beside the same run made again."""
