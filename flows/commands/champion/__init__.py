"""Promote, approve or roll back a champion."""
