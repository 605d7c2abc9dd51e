"""Prompts as a part of the champion: optimised with GEPA, judged by the gate."""
