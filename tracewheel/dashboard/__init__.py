"""The dashboard: one read-only web application over run folders, in which a team reviews runs and decides.

`library` finds the runs, `run_rows` sums each up, `episodes` reads trajectories with DuckDB, `pages` has one module for each
page, and `app` puts them behind the `guard`.
"""
