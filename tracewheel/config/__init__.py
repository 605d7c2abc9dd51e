"""The configuration: one YAML profile, frozen and strict, with choices told apart by `kind`.

A profile is parsed once at the start of a command; every unknown key, wrong type and impossible
combination is reported with its path before anything runs. `--set a.b=c` overrides one value. Each
run stores the resolved profile.
"""

from tracewheel.config.adaptation import LoraConfig, LoraShape, MergeConfig, SpecialistsConfig
from tracewheel.config.base_policy import (
    BasePhaseConfig,
    BasePolicyConfig,
)
from tracewheel.config.curation import (
    CurationConfig,
    DecontaminationConfig,
    DifficultyConfig,
    DuplicatesConfig,
    RedactionConfig,
)
from tracewheel.config.doctor import Ceiling, CheckName, DoctorConfig, Floor
from tracewheel.config.endpoint import EndpointConfig, PricesConfig
from tracewheel.config.engines import EngineConfig, TransformersEngineConfig, VllmConfig, VllmEngineConfig, VllmServerConfig
from tracewheel.config.ingest import IngestConfig, TraceFormat
from tracewheel.config.learner import (
    AdvantageConfig,
    BackendConfig,
    BatchAdvantageConfig,
    BufferConfig,
    CispoConfig,
    ClipConfig,
    CreditConfig,
    CriticConfig,
    DeepSpeedConfig,
    DpoConfig,
    EntropyConfig,
    GaeAdvantageConfig,
    GroupAdvantageConfig,
    GspoConfig,
    KlConfig,
    LearnerConfig,
    LeaveOneOutAdvantageConfig,
    LikelihoodConfig,
    OffPolicyConfig,
    PolicyGradientConfig,
    SapoConfig,
    SuccessAdvantageConfig,
    SurrogateConfig,
    TeacherAdvantageConfig,
    UpdateConfig,
    ZeroVarianceConfig,
)
from tracewheel.config.loading import load_base_config, load_config, load_ingest_config
from tracewheel.config.mismatch import MismatchConfig
from tracewheel.config.profile import (
    EnvironmentConfig,
    EvaluationConfig,
    ExplorationConfig,
    GateConfig,
    PolicyConfig,
    ReplayConfig,
    RetrainConfig,
    RolloutConfig,
    TrackingConfig,
    TrainingConfig,
    WarmStartConfig,
)
from tracewheel.config.rubric import CostObjective, ObjectiveConfig, PartObjective, RubricConfig, RubricTerm
from tracewheel.config.sampler import SamplerConfig, VariantsConfig
from tracewheel.config.teacher import TeacherConfig
from tracewheel.config.workers import LocalWorkersConfig, RayWorkersConfig, WorkersConfig

__all__ = [
    "AdvantageConfig",
    "BackendConfig",
    "BasePhaseConfig",
    "BasePolicyConfig",
    "BatchAdvantageConfig",
    "BufferConfig",
    "Ceiling",
    "CheckName",
    "CispoConfig",
    "ClipConfig",
    "CostObjective",
    "CreditConfig",
    "CriticConfig",
    "CurationConfig",
    "DecontaminationConfig",
    "DeepSpeedConfig",
    "DifficultyConfig",
    "DoctorConfig",
    "DpoConfig",
    "DuplicatesConfig",
    "EndpointConfig",
    "EngineConfig",
    "EntropyConfig",
    "EnvironmentConfig",
    "EvaluationConfig",
    "ExplorationConfig",
    "Floor",
    "GaeAdvantageConfig",
    "GateConfig",
    "GroupAdvantageConfig",
    "GspoConfig",
    "IngestConfig",
    "KlConfig",
    "LearnerConfig",
    "LeaveOneOutAdvantageConfig",
    "LikelihoodConfig",
    "LocalWorkersConfig",
    "LoraConfig",
    "LoraShape",
    "MergeConfig",
    "MismatchConfig",
    "ObjectiveConfig",
    "OffPolicyConfig",
    "PartObjective",
    "PolicyConfig",
    "PolicyGradientConfig",
    "PricesConfig",
    "RayWorkersConfig",
    "RedactionConfig",
    "ReplayConfig",
    "RetrainConfig",
    "RolloutConfig",
    "RubricConfig",
    "RubricTerm",
    "SamplerConfig",
    "SapoConfig",
    "SpecialistsConfig",
    "SuccessAdvantageConfig",
    "SurrogateConfig",
    "TeacherAdvantageConfig",
    "TeacherConfig",
    "TraceFormat",
    "TrackingConfig",
    "TrainingConfig",
    "TransformersEngineConfig",
    "UpdateConfig",
    "VariantsConfig",
    "VllmConfig",
    "VllmEngineConfig",
    "VllmServerConfig",
    "WarmStartConfig",
    "WorkersConfig",
    "ZeroVarianceConfig",
    "load_base_config",
    "load_config",
    "load_ingest_config",
]
