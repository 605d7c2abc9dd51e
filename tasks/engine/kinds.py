"""Which code the results of a stage depend on: its own road, and the kinds that the profile names on it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tracewheel.config import DpoConfig, PassesConfig, PolicyGradientConfig, RetrainConfig
from tracewheel.core.fingerprint import code_files, own_modules
from tracewheel.core.log_formats import READERS, reading_places
from tracewheel.core.tool_formats import AUTO, FORMATS
from tracewheel.engines.making import ENGINES
from tracewheel.evaluation.graders import AUDITS
from tracewheel.gateway.dialects.dialect import DIALECTS
from tracewheel.learner.auto import alternatives
from tracewheel.learner.kinds import ADVANTAGES, DEEPSPEED, SURROGATES
from tracewheel.learner.update import POLICY_GRADIENT, PREFERENCES
from tracewheel.rollout.rollout import PROGRAMS
from tracewheel.scoring.world_code import Code, kinds_code, world_code


class Named(NamedTuple):
    """Kinds that a section of a profile names: the module whose table finds them, and their code."""

    section: str
    table: str
    code: Code


def code_of(roads: Iterable[str], config: RetrainConfig, sections: tuple[str, ...]) -> Code:
    """The modules whose closures a stage's results depend on.

    Of the kinds that its sections name, those count whose table the stage reaches: an update makes no environment.

    Args:
        roads: The domain modules that do its work.
        config: The profile.
        sections: The sections that the stage reads.
    """
    named = [each for each in _named(config) if each.section in sections]
    counted, code = -1, Code(tuple(roads))
    while counted < len(code.modules):
        counted, reached = len(code.modules), _reached(code.modules)
        codes = [each.code for each in named if each.table in reached]
        modules = {*roads, *(module for each in codes for module in each.modules)}
        code = Code(tuple(sorted(modules)), tuple(sorted({module for each in codes for module in each.plugins})))
    return code


@functools.lru_cache(maxsize=256)
def _reached(modules: tuple[str, ...]) -> frozenset[str]:
    return frozenset(code_files(*modules))


def _named(config: RetrainConfig) -> Iterator[Named]:
    """The kinds that a profile names, by section."""
    environment = config.environment
    yield Named("environment", "tracewheel.environments", world_code(environment.spec, environment.verifiers))
    for section, rubric in (("rubric", config.rubric), ("evaluation", config.evaluation.rubric)):
        if rubric is not None:
            yield Named(section, "tracewheel.scoring.verifiers", kinds_code(*(term.spec for term in rubric.verifiers)))
    yield Named("audit", "tracewheel.evaluation.graders", Code(_modules(*map(AUDITS.place, AUDITS))))
    yield Named("ingest", "tracewheel.traces.readers.log_reader", _readers(config))
    formats = FORMATS if config.policy.tool_format == AUTO else [config.policy.tool_format]
    places = [FORMATS.place(name) for name in formats if name in FORMATS]
    yield Named("policy", "tracewheel.core.tool_formats", Code(_modules(*places), own_modules(formats)))
    yield Named("rollout", "tracewheel.engines.making", Code(_modules(ENGINES[config.rollout.engine.kind])))
    if config.rollout.harness is not None:
        yield Named("rollout", "tracewheel.rollout.rollout", Code(_modules(PROGRAMS, *map(DIALECTS.place, DIALECTS))))
    for section, passes in (("learner", config.learner), ("warm_start", config.warm_start)):
        assert isinstance(passes, PassesConfig)
        if passes.backend.kind == "deepspeed":
            yield Named(section, "tracewheel.learner.backends.select", Code((DEEPSPEED,)))
    if isinstance(config.learner, DpoConfig):
        yield Named("learner", "tracewheel.learner.update", Code(_modules(PREFERENCES)))
        return
    yield Named("learner", "tracewheel.learner.update", Code(_modules(POLICY_GRADIENT)))
    for learner in alternatives(config.learner):
        yield from _algorithm(learner)


def _algorithm(learner: PolicyGradientConfig) -> Iterator[Named]:
    advantage = learner.advantage
    kinds = [advantage.kind, *(["kl_to_go"] if learner.kl.credit == "to_go" else [])]
    places = [ADVANTAGES[kind] for kind in kinds if kind in ADVANTAGES]
    yield Named("learner", "tracewheel.learner.advantages.trajectories", Code(_modules(*places), own_modules([advantage.kind])))
    yield Named("learner", "tracewheel.learner.losses.policy", Code(_modules(SURROGATES[learner.surrogate.kind])))


def _readers(config: RetrainConfig) -> Code:
    own = [reader.kind for reader in config.ingest.readers]
    places = [READERS.place(name) for name in own if name in READERS]
    modules = _modules(*reading_places(config.ingest.format), *places)
    return Code(tuple(sorted(set(modules))), own_modules(own))


def _modules(*places: str) -> tuple[str, ...]:
    return tuple(place.partition(":")[0] for place in places)
