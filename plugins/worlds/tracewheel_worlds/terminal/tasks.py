"""Tasks of the terminal: six families in four tiers.

| family | the work | tier |
|---|---|---|
| `logs` | lines of log files, found and sorted | lines, codes, counts, counts of one user |
| `rename` | many files renamed | ending, prefix, numbers, folders by year |
| `modes` | permissions mended | scripts, the rest, keys, files by their content |
| `sum` | a column of CSV files summed up | one file, all files, some rows, by region |
| `archive` | an archive unpacked | all, some, one within another, only what is new |
| `script` | a shell script that is tried on other folders | files, all below, their lines, the longest |
"""

from __future__ import annotations

import random

from tracewheel import Task
from tracewheel_worlds.terminal.archives import archive_parts
from tracewheel_worlds.terminal.folders import modes_parts, rename_parts
from tracewheel_worlds.terminal.goals import terminal_task
from tracewheel_worlds.terminal.parts import Parts
from tracewheel_worlds.terminal.scripts import script_parts
from tracewheel_worlds.terminal.tables import logs_parts, sum_parts

MAKERS = {
    "logs": logs_parts,
    "rename": rename_parts,
    "modes": modes_parts,
    "sum": sum_parts,
    "archive": archive_parts,
    "script": script_parts,
}
FAMILIES = tuple(MAKERS)
TIERS = (1, 2, 3, 4)
ENDINGS = ("", " Leave everything else as it is.", " Nothing else may change.")


def make_task(family: str, tier: int, rng: random.Random) -> Task:
    """A random task of a family and tier."""
    parts: Parts = MAKERS[family](tier, rng)
    goal = {
        "family": family,
        "tier": tier,
        **parts.wanted,
        "solution": parts.solution,
        "near_misses": parts.near_misses,
    }
    return terminal_task(parts.prompt + rng.choice(ENDINGS), {"files": parts.files}, goal)
