"""The options of `tracewheel deploy`."""

from __future__ import annotations

import argparse

# A default training set has 72 tasks; most records are another attempt at a known one.
MIN_NEW = 100


def add_deploy_options(parser: argparse.ArgumentParser) -> None:
    """When runs start, and where they run. What the options name is checked by `flows.deploy.checks`."""
    when = parser.add_argument_group("when runs start", "at least one; a schedule and triggers may be combined")
    when.add_argument("--cron", metavar="CRON", help='as in "0 3 * * *": minute, hour, day of month, month, day of week')
    when.add_argument("--interval", type=float, metavar="SECONDS", help="every SECONDS seconds")
    when.add_argument(
        "--timezone", metavar="ZONE", help="of --cron, as in Europe/Berlin (default: schedule.timezone, else UTC)"
    )
    when.add_argument("--on-new-traces", metavar="DIR", help="when records have arrived in DIR since the last run")
    when.add_argument("--min-new", type=int, metavar="N", help=f"how many, for --on-new-traces (default {MIN_NEW})")
    when.add_argument("--on-drift", action="store_true", help="when success or the mix of tasks has drifted")
    where = parser.add_argument_group("where runs are served")
    where.add_argument(
        "--port",
        type=int,
        help="of the Prefect server that is started without PREFECT_API_URL (default: schedule.port, else 4200)",
    )
    where.add_argument("--pool", metavar="NAME", help="register for this work pool of the server instead of serving")
    where.add_argument("--image", help="of a Docker or Kubernetes pool's runs")
    where.add_argument(
        "--job-variable",
        dest="job_variables",
        action="append",
        default=[],
        metavar="name=value",
        help="of the pool's jobs, as in memory_limit=8Gi; more than once",
    )
