"""What each stage reads of a profile. A stage takes its sections, so it can read nothing that its cache key leaves out."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from tracewheel.config.algorithms import RateTrialsConfig
from tracewheel.config.base import Count, Strict
from tracewheel.config.curation import CurationConfig
from tracewheel.config.evaluation import EvaluationConfig, GateConfig, RubricConfig
from tracewheel.config.ingest import IngestConfig
from tracewheel.config.learner import LearnerConfig
from tracewheel.config.operations import AuditConfig, DoctorConfig
from tracewheel.config.placement import PlacementConfig
from tracewheel.config.profile import EnvironmentConfig, PolicyConfig, TrackingConfig, TrainingConfig, WarmStartConfig
from tracewheel.config.rollout import EndpointConfig, RolloutConfig, SamplerConfig, TeacherConfig


class Sections(Strict):
    """Some sections of a profile, each under its name there.

    Attributes:
        UNKEYED: Fields that do not change a stage's result, and are not in its cache key.
    """

    UNKEYED: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def of(cls, profile: Any) -> Self:
        """The sections of a profile, or of other sections that hold all of these."""
        return cls(**{name: getattr(profile, name) for name in cls.model_fields})

    @classmethod
    def keyed(cls) -> tuple[str, ...]:
        """The sections that a stage's cache key is made of."""
        return tuple(name for name in cls.model_fields if name not in cls.UNKEYED)


class IngestSections(Sections):
    ingest: IngestConfig


class CurateSections(Sections):
    seed: int
    environment: EnvironmentConfig
    curation: CurationConfig


class WarmStartSections(Sections):
    UNKEYED = frozenset({"placement"})

    placement: PlacementConfig
    seed: int
    threads: Count
    policy: PolicyConfig
    environment: EnvironmentConfig
    warm_start: WarmStartConfig


class EngineSections(Sections):
    """What an engine is made from. `largest_rank` sizes vLLM's buffers and changes no token."""

    UNKEYED = frozenset({"largest_rank", "placement"})

    placement: PlacementConfig
    threads: Count
    policy: PolicyConfig
    rollout: RolloutConfig
    largest_rank: Count


class RolloutSections(EngineSections):
    seed: int
    environment: EnvironmentConfig


class WorkerSections(EngineSections):
    """What a rollout worker reads; `threads` are the worker's own."""

    environment: EnvironmentConfig
    training: TrainingConfig


class CollectSections(Sections):
    rollout: RolloutConfig


class ScoreSections(Sections):
    policy: PolicyConfig
    environment: EnvironmentConfig
    rubric: RubricConfig


class EvaluateSections(RolloutSections, ScoreSections):
    evaluation: EvaluationConfig


class UpdateSections(Sections):
    """What an update reads. `own_sampler` decides whether it corrects for a mismatch of sampler and trainer, `certifies`
    whether it measures how faithfully it trains on what programs were told.

    A kept learner writes the same bytes as a new one.
    """

    UNKEYED = frozenset({"keeps_learner", "placement"})

    placement: PlacementConfig
    own_sampler: bool
    certifies: bool
    keeps_learner: bool
    seed: int
    threads: Count
    policy: PolicyConfig
    learner: LearnerConfig
    schedule_iterations: Count | None


class SolutionSections(Sections):
    seed: int
    policy: PolicyConfig
    environment: EnvironmentConfig
    warm_start: WarmStartConfig
    learner: LearnerConfig


class RateTrialSections(UpdateSections):
    rate_trials: RateTrialsConfig


class GoBackSections(Sections):
    """Going back reads none: its arguments name the state and the version."""


class AuditSections(Sections):
    environment: EnvironmentConfig
    rubric: RubricConfig
    evaluation: EvaluationConfig
    audit: AuditConfig


class GateSections(Sections):
    gate: GateConfig


class ChampionSections(Sections):
    """`tracking` and `work_dir` say where it is; the champion's digest, an argument of the stage, says what it holds."""

    UNKEYED = frozenset({"tracking", "work_dir"})

    work_dir: str
    policy: PolicyConfig
    tracking: TrackingConfig


class SamplerSections(Sections):
    seed: int
    environment: EnvironmentConfig
    sampler: SamplerConfig


class PlaySections(Sections):
    """What decides how a model behind an endpoint plays."""

    seed: int
    rollout: RolloutConfig


class TeachSections(PlaySections):
    policy: PolicyConfig
    teacher: TeacherConfig | None


class BaselineSections(PlaySections, ScoreSections):
    baseline: EndpointConfig | None
    evaluation: EvaluationConfig


class DoctorSections(Sections):
    environment: EnvironmentConfig
    rollout: RolloutConfig
    learner: LearnerConfig
    gate: GateConfig
    doctor: DoctorConfig
