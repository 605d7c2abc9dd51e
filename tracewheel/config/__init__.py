"""The configuration: one frozen, strict YAML profile; `kind` discriminates its unions.

A profile is parsed once at the start of a command. Every unknown key, wrong type and impossible combination is reported
with its path before anything runs. `--set a.b=c` overrides one value. Each run stores the resolved profile.
"""

from tracewheel.config.algorithms import (
    AdvantageConfig,
    BatchAdvantageConfig,
    CriticConfig,
    DomainAdvantageConfig,
    GaeAdvantageConfig,
    GroupAdvantageConfig,
    LeaveOneOutAdvantageConfig,
    SuccessAdvantageConfig,
    TeacherAdvantageConfig,
)
from tracewheel.config.curation import (
    CurationConfig,
    DuplicatesConfig,
    RedactionConfig,
)
from tracewheel.config.evaluation import (
    CostObjective,
    EvaluationConfig,
    GateConfig,
    ObjectiveConfig,
    OverlongConfig,
    RubricConfig,
    RubricTerm,
)
from tracewheel.config.ingest import IngestConfig, ReaderConfig
from tracewheel.config.learner import (
    CispoConfig,
    ClipConfig,
    DeepSpeedConfig,
    DpoConfig,
    GspoConfig,
    KlConfig,
    LearnerConfig,
    LikelihoodConfig,
    LostTasksConfig,
    MismatchConfig,
    OffPolicyConfig,
    PassesConfig,
    PolicyGradientConfig,
    SapoConfig,
    SurrogateConfig,
    UpdateConfig,
)
from tracewheel.config.loading import load_config, load_ingest_config, load_stored_config
from tracewheel.config.operations import AuditConfig, DoctorConfig, Limits
from tracewheel.config.placement import (
    EngineConfig,
    TransformersEngineConfig,
    VllmEngineConfig,
    VllmServerConfig,
)
from tracewheel.config.profile import (
    EnvironmentConfig,
    LoraConfig,
    PolicyConfig,
    RetrainConfig,
    TrackingConfig,
    TrainingConfig,
    WarmStartConfig,
)
from tracewheel.config.rollout import (
    EndpointConfig,
    ExplorationConfig,
    HarnessConfig,
    PricesConfig,
    RolloutConfig,
    SamplerConfig,
    TeacherConfig,
    WorkersConfig,
)
from tracewheel.config.sections import (
    AuditSections,
    BaselineSections,
    ChampionSections,
    CollectSections,
    CurateSections,
    DoctorSections,
    EngineSections,
    EvaluateSections,
    GateSections,
    GoBackSections,
    IngestSections,
    PlaySections,
    RateTrialSections,
    RolloutSections,
    SamplerSections,
    ScoreSections,
    Sections,
    SolutionSections,
    TeachSections,
    UpdateSections,
    WarmStartSections,
    WorkerSections,
)
