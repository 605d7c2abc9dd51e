"""What the gate can see: the tasks that a gain needs, and the gain that the tasks can show."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

from tracewheel.core.inference import components_needed

POWER = 0.8
GAINS = (0.05, 0.1)
# Standard deviation of the difference on a task, greedy and four sampled episodes, where no earlier gate tells: pairs of the
# demo's policies 8 to 12 points apart have 0.32 to 0.38, the worlds of `benchmarks/gate_year.py` 0.24 to 0.34.
USUAL_SPREAD = 0.35


def too_few_components(tasks: int, components: int, level: float) -> str:
    """Why no gain on these tasks can be shown at this level, and what to do."""
    return (
        f"the {tasks} held-out tasks hang together in {components} component{'' if components == 1 else 's'}, and at this "
        f"level no gain is shown with fewer than {components_needed(level)}: bring logs of more users, sessions or templates"
    )


def tasks_needed(gain: float, spread: float, level: float, power: float = POWER) -> int:
    """Held-out tasks with which a true `gain` is promoted with probability `power`.

    The normal approximation for a one-sided paired test (Lachin 1981).

    Args:
        gain: Mean difference, as a share: 0.05 is 5 points.
        spread: Standard deviation of the differences between tasks.
        level: One-sided level of the test.
    """
    normal = NormalDist()
    return math.ceil(((-normal.inv_cdf(level) + normal.inv_cdf(power)) * spread / gain) ** 2)


def visible_gain(tasks: int, spread: float, level: float, power: float = POWER) -> float:
    """The smallest true gain that is promoted with probability `power`; the inverse of `tasks_needed`."""
    normal = NormalDist()
    return (-normal.inv_cdf(level) + normal.inv_cdf(power)) * spread / math.sqrt(tasks)


def describe_power(tasks: int, level: float, spread: float | None = None, components: int | None = None) -> dict[str, Any]:
    """The gate's power with so many tasks, as JSON types, with a sentence in `says`.

    Args:
        spread: As an earlier gate measured it; None to assume the usual one.
        components: In which the tasks hang together; None if that is not known yet.
    """
    if level <= 0.0 or tasks < 1:
        return {"tasks": tasks, "level": level, "says": "the gate can promote nothing: no held-out tasks or no error budget"}
    if components is not None and components < components_needed(level):
        says = f"the gate can promote nothing: {too_few_components(tasks, components, level)}"
        return {"tasks": tasks, "level": level, "says": says}
    used = spread or USUAL_SPREAD
    needed = {gain: tasks_needed(gain, used, level) for gain in GAINS}
    smallest = visible_gain(tasks, used, level)
    wanted = ", ".join(f"{100 * gain:g} points need {count}" for gain, count in needed.items())
    source = "as the last gate measured" if spread else "assumed, until a gate has measured it"
    return {
        "tasks": tasks,
        "level": level,
        "spread": used,
        "needed": {f"{gain:g}": count for gain, count in needed.items()},
        "visible_gain": smallest,
        "says": f"to see a gain with {POWER:.0%} power, {wanted} held-out tasks; you have {tasks}, which show "
        f"{100 * smallest:.1f} points (differences spread by {used:.2f}, {source})",
    }
