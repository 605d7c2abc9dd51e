"""The pages, each in a module of its own with its routes."""

from tracewheel.dashboard.pages import (
    compare,
    episodes,
    groups,
    help,
    lineage,
    pair,
    review,
    rollouts,
    run,
    runs,
    search,
    tasks,
    tokens,
    traces,
    trajectory,
)

ROUTERS = (
    runs.router,
    run.router,
    rollouts.router,
    compare.router,
    help.router,
    tasks.router,
    groups.router,
    pair.router,
    episodes.router,
    tokens.router,
    trajectory.router,
    search.router,
    traces.router,
    lineage.router,
    review.router,
)
