"""The teacher's part of a profile."""

from __future__ import annotations

from tracewheel.config.base import Count
from tracewheel.config.endpoint import EndpointConfig


class TeacherConfig(EndpointConfig):
    """A teacher behind an endpoint, which plays each training task `samples` times (`tracewheel teach`).

    The length that a demonstration may have is bounded by the profile's `rollout`.
    """

    samples: Count = 4
