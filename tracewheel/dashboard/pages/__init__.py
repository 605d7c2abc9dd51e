"""The pages, each in a module of its own with its routes."""

from tracewheel.dashboard.pages import episodes, groups, pair, rollouts, run, runs, search, tasks, tokens, trajectory

ROUTERS = (
    runs.router,
    run.router,
    rollouts.router,
    tasks.router,
    groups.router,
    pair.router,
    episodes.router,
    tokens.router,
    trajectory.router,
    search.router,
)
