"""Partial credit: the progress that a task's own verifier measures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracewheel.core.types import Task
from tracewheel.scoring.verifiers.base import AnyVerifier, GradedVerifier, state_progress


class ProgressVerifier:
    """The progress of the final state towards the goal, as the verifier that the task names measures it.

    >>> from tracewheel.environments.order_desk.tasks import order_desk_task
    >>> from tracewheel.scoring.verifiers.order_desk import OrderDeskVerifier
    >>> order = {"id": "K7", "customer": "Mia Kent", "item": "kettle", "amount": 24, "status": "open"}
    >>> orders = [order, {**order, "id": "B3", "item": "lamp"}]
    >>> goal = {"family": "open", "customer": "Mia Kent"}
    >>> task = order_desk_task("Cancel all open orders of Mia Kent.", {"orders": orders}, goal)
    >>> verifier = ProgressVerifier({"order_desk": OrderDeskVerifier()})
    >>> verifier.verify(task, {"orders": [{**order, "status": "cancelled"}, orders[1]]})
    (0.5, {})

    The total is 1 only for a solved task. As an objective it is the reward, while the task's verifier decides success:

        rubric:
          verifiers: [{kind: task}, {kind: progress}]
          objectives: [{kind: part, name: progress, part: progress}]

    Args:
        verifiers: Those that tasks name, by what they name them. A rubric has them, so it makes this one itself.

    Raises:
        TypeError: the task's verifier measures no progress.
    """

    kind = "progress"

    def __init__(self, verifiers: Mapping[str, AnyVerifier]) -> None:
        self._verifiers = verifiers

    def verify(self, task: Task, final_state: dict[str, Any]) -> tuple[float, dict[str, float]]:
        verifier = self._verifiers[task.verifier]
        if not isinstance(verifier, GradedVerifier):
            raise TypeError(f"verifier {verifier.kind} measures no progress")
        return state_progress(verifier, task, final_state), {}
