"""The failure of a program that an environment speaks to: never the policy's fault, and no exception of the run."""

from __future__ import annotations

from tracewheel.core.errors import InfrastructureError
from tracewheel.core.types import Fault


class ToolFailure(InfrastructureError):
    """A tool's server crashed, hung or broke its protocol; the episode has no score."""

    fault: Fault = "tool"


class BridgeFailure(InfrastructureError):
    """Another project's environment crashed, hung or raised; the episode has no score."""

    fault: Fault = "environment"
