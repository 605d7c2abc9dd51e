"""What `tracewheel deploy` is to register and where, once it is checked."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from tracewheel.config import RetrainConfig

PROCESS_POOL = "process"


@dataclass(frozen=True)
class Plan:
    """A checked deployment.

    Attributes:
        timezone: Of the cron schedule.
        port: Of the server that is started; None where the user has one.
        pool_type: Of the work pool whose workers start the runs; empty where this command serves them.
    """

    options: argparse.Namespace
    config: RetrainConfig
    timezone: str
    port: int | None
    pool_type: str = ""

    @property
    def name(self) -> str:
        """The deployment's name; the flow's is before it in Prefect."""
        return self.config.name

    @property
    def in_container(self) -> bool:
        """Whether the runs are elsewhere, in an image with files of its own."""
        return self.pool_type not in ("", PROCESS_POOL)
