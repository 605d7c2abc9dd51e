"""The teacher: a stronger model that demonstrates tasks."""

from __future__ import annotations

from tracewheel.config.base import Count
from tracewheel.config.endpoint import EndpointConfig


class TeacherConfig(EndpointConfig):
    """A teacher behind an endpoint, which plays each training task `samples` times (`tracewheel teach`).

    The profile's `rollout` bounds the length of a demonstration.
    """

    samples: Count = 4
