"""Tasks spread evenly over families and tiers, for environments with a generator."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence

from tracewheel.core.errors import ConfigError
from tracewheel.core.types import Task

# So many draws in a row that give no new task of any family and tier, and the generator counts as exhausted.
DRAWS = 50


def spread_tasks(
    make: Callable[[str, int, random.Random], Task | None], families: Sequence[str], tiers: Sequence[int], n: int, seed: int
) -> list[Task]:
    """`n` tasks with different fingerprints, in turn of each family and tier.

    A family and tier that has no more different tasks is passed over.

    Args:
        make: A random task of a family and tier; None where there is none.
        families: The families.
        tiers: The tiers.
        n: How many.
        seed: The same seed gives the same tasks.

    Raises:
        ConfigError: there are not that many different tasks.
    """
    rng, seen, tasks = random.Random(f"tasks-{seed}"), set[str](), list[Task]()
    rows, columns = len(families), len(tiers)
    # Along the diagonals, so that the first few tasks already have every family and every tier.
    open_strata = [
        (families[number % rows], tiers[(number + number // math.lcm(rows, columns)) % columns])
        for number in range(rows * columns)
    ]
    while open_strata and len(tasks) < n:
        for stratum in open_strata[: n - len(tasks)]:
            drawn = (make(*stratum, rng) for _ in itertools.repeat(None, DRAWS))
            task = next((task for task in drawn if task is not None and task.fingerprint not in seen), None)
            if task is None:
                open_strata.remove(stratum)
                continue
            seen.add(task.fingerprint)
            tasks.append(task)
    if len(tasks) < n:
        raise ConfigError(f"{n} tasks are wanted, and the generator found {len(tasks)} different ones: ask for fewer")
    return tasks
