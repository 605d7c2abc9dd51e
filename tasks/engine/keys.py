"""What the stages of `dvc.yaml` depend on beside files: settings with their defaults, code and packages, by stage.

DVC sees files alone. A stage there depends on its keys, so it runs again when the flow would make its results anew, and not
when a comment, or code or a setting that it does not read, has changed. Inputs are files that `dvc.yaml` names itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tasks.engine.kinds import code_of
from tasks.engine.run import values_for
from tasks.engine.stage_code import TASKS
from tracewheel.config import RetrainConfig
from tracewheel.core.fingerprint import code_version

# Worked out from other sections.
DERIVED = {"own_sampler", "certifies", "keeps_learner", "largest_rank", "schedule_iterations"}


class Needs(NamedTuple):
    """What a stage of `dvc.yaml` is made of.

    Attributes:
        tasks: The flow's stages in it, by name.
        sections: Sections of the profile that it reads beside those of its tasks.
        code: Modules of the domain that it calls beside those of its tasks.
    """

    tasks: tuple[str, ...]
    sections: tuple[str, ...] = ()
    code: tuple[str, ...] = ()


NEEDS: dict[str, Needs] = {
    "ingest": Needs(("ingest",)),
    "curate": Needs(("curate",)),
    "warm_start": Needs(("warm_start",)),
    "improve": Needs(
        ("rollout", "collect", "score", "update", "rate_trials", "teach", "solutions", "go_back", "evaluate"),
        ("training", "sampler", "learner", "guard", "rate_trials"),
        (
            "tracewheel.sampling.curriculum", "tracewheel.sampling.dynamic_sampling", "tracewheel.sampling.guard",
            "tracewheel.sampling.lost_tasks",
            "tracewheel.sampling.validation", "tracewheel.evaluation.ranking",
        ),
    ),
    "evaluate": Needs(("evaluate",)),
    "gate": Needs(("gate",)),
    "figures": Needs((), ("seed", "evaluation"), ("tracewheel.report.figures",)),
}  # fmt: skip


def sections_of(stage: str) -> tuple[str, ...]:
    """The sections of a profile that a stage of `dvc.yaml` reads, sorted."""
    needs = NEEDS[stage]
    found = {section for task in needs.tasks for section in TASKS[task].sections.keyed()} | set(needs.sections)
    return tuple(sorted(found - DERIVED))


def all_sections() -> tuple[str, ...]:
    """The sections that any stage reads, sorted."""
    return tuple(sorted({section for stage in NEEDS for section in sections_of(stage)}))


def stage_keys(config: RetrainConfig) -> dict[str, Mapping[str, Any]]:
    """Stage of `dvc.yaml` to its settings, and versions of its code and packages, as JSON types."""
    keys: dict[str, Mapping[str, Any]] = {}
    for stage, needs in NEEDS.items():
        sections = sections_of(stage)
        keys[stage] = {
            "settings": values_for(config, sections),
            "tasks": {task: TASKS[task].made_by(config) for task in needs.tasks},
            "code": {module: _version(module, config, sections) for module in needs.code},
        }
    return keys


def _version(module: str, config: RetrainConfig, sections: tuple[str, ...]) -> str:
    modules, plugins = code_of([module], config, sections)
    return code_version(*modules, plugins=plugins)
