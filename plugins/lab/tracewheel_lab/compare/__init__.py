"""Finished runs side by side: what differs in settings, data, success and costs, and a page of the dashboard."""
