"""The pages, each in a module of its own with its routes."""

from tracewheel.dashboard.pages import run, runs

ROUTERS = (runs.router, run.router)
