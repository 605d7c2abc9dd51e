"""Evaluation of policies, and the gate that promotes them."""
