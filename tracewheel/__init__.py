"""Tracewheel: from the logged traces of an LLM agent to a better agent.

The names in `PUBLIC` are the public interface for your own environments, verifiers and readers (`docs/public.md`). Import
them from `tracewheel`: other modules may move. Each is imported on first use, so `import tracewheel` loads nothing heavy.
Importing it sets how torch's threads wait (`tracewheel/core/threads.py`).
"""

from __future__ import annotations

import importlib
from typing import Any

from tracewheel.core.threads import wait_briefly

__version__ = "0.1.0"

PUBLIC = {
    "flows.commands.command": (
        "Command",
        "FileOut",
    ),
    "flows.console.arguments": (
        "curated_folder",
        "folder_of",
        "profile_of",
        "profile_options",
        "profile_words",
    ),
    "flows.console.look": (
        "Block",
        "Card",
        "Grid",
    ),
    "flows.console.progress": ("stage_shown",),
    "flows.screening": ("Screen",),
    "flows.setup": (
        "prepare_environment",
        "resolve_config",
    ),
    "flows.wheel_stages": (
        "Played",
        "WheelStage",
    ),
    "tasks.afterwards.reproduction": ("begin_again",),
    "tasks.engine.run": (
        "Policy",
        "Run",
    ),
    "tasks.engine.stage": (
        "Context",
        "stage_task",
    ),
    "tasks.engine.stage_code": ("stage_files",),
    "tasks.records.audit": ("note_audit",),
    "tasks.stages.ingest": ("ingested",),
    "tasks.tracking.log_run": ("log_run",),
    "tasks.tracking.registry": (
        "fetch_registered",
        "find_champion",
    ),
    "tracewheel.chat.tokenizer": ("load_tokenizer",),
    "tracewheel.config": (
        "AuditSections",
        "BaselineSections",
        "CurateSections",
        "EndpointConfig",
        "EvaluateSections",
        "PolicyConfig",
        "RetrainConfig",
        "RolloutSections",
        "SamplerSections",
        "ScoreSections",
        "UpdateSections",
        "WarmStartSections",
        "WorkerSections",
        "load_config",
    ),
    "tracewheel.config.base": (
        "Count",
        "Positive",
        "Strict",
    ),
    "tracewheel.core.box_calls": ("seccomp_program",),
    "tracewheel.core.box_folders": (
        "bound_folders",
        "hidden_folders",
        "masked_files",
    ),
    "tracewheel.core.differences": (
        "setting_differences",
        "value_differences",
    ),
    "tracewheel.core.endings": (
        "ending",
        "with_ending",
    ),
    "tracewheel.core.errors": (
        "AdapterMismatchError",
        "ConfigError",
        "DataError",
        "DoubtfulData",
        "GateRefused",
        "InfrastructureError",
        "InputError",
        "LeakError",
        "NotReproduced",
        "SamplerMismatchError",
        "SecretError",
        "TimeLimitError",
        "TracewheelError",
        "UnhealthyRun",
        "WeakGrader",
        "WeightsError",
    ),
    "tracewheel.core.files": (
        "most_expanded",
        "read_batches",
        "read_json",
        "read_records",
        "read_table",
        "write_json",
        "write_records",
    ),
    "tracewheel.core.fingerprint": ("digest_of",),
    "tracewheel.core.foreign_folder": (
        "ForeignFile",
        "ForeignFolder",
        "read_file",
        "read_text",
    ),
    "tracewheel.core.forks": ("read_before",),
    "tracewheel.core.inference": (
        "rate_interval",
        "wilson_interval",
    ),
    "tracewheel.core.kind_table": ("give",),
    "tracewheel.core.kinds": (
        "kind_text",
        "parse_kind",
    ),
    "tracewheel.core.locks": ("hold_beside",),
    "tracewheel.core.log_formats": ("request_bodies",),
    "tracewheel.core.machine": (
        "NUMERIC_VARIABLES",
        "machine_record",
        "said_version",
    ),
    "tracewheel.core.out_folder": ("Writes",),
    "tracewheel.core.paths": (
        "JsonPath",
        "MissingPath",
    ),
    "tracewheel.core.processes": ("end_with_parent",),
    "tracewheel.core.run_record": (
        "find_runs",
        "run_named",
    ),
    "tracewheel.core.store": (
        "Entry",
        "produce_whole",
        "write_whole",
    ),
    "tracewheel.core.strict_json": (
        "check_json",
        "fresh_copy",
        "parse_json",
        "parse_python",
        "read_json_at",
    ),
    "tracewheel.core.time_limits": ("untimed",),
    "tracewheel.core.types": (
        "Score",
        "Task",
        "Trace",
        "Trajectory",
        "Turn",
        "canonical_json",
        "content_hash",
        "stored_json",
    ),
    "tracewheel.curation.curate": ("curate",),
    "tracewheel.curation.curated_folder": ("load_tasks",),
    "tracewheel.curation.probes": (
        "logged_solutions",
        "probe_task",
    ),
    "tracewheel.curation.replayed_traces": ("replayed_rows",),
    "tracewheel.dashboard.files": (
        "document_file",
        "write_audit_page",
        "write_page",
    ),
    "tracewheel.dashboard.sources": ("sources_of",),
    "tracewheel.dashboard.view": (
        "Ask",
        "Tab",
        "page",
    ),
    "tracewheel.demo.base_tokenizer": (
        "chat_pieces",
        "fixed_text",
    ),
    "tracewheel.demo.deployed_logs": (
        "FIRST_EPISODE",
        "Deployment",
        "log_line",
        "logged_episodes",
        "played_record",
        "with_broken_lines",
    ),
    "tracewheel.demo.worlds": ("World",),
    "tracewheel.engines.base": (
        "Engine",
        "Generation",
        "Request",
    ),
    "tracewheel.engines.chat_reply": (
        "BudgetReached",
        "Reply",
    ),
    "tracewheel.engines.making": ("make_engine",),
    "tracewheel.engines.openai_chat": ("OpenAiChat",),
    "tracewheel.environments": (
        "make_environment",
        "open_environment",
    ),
    "tracewheel.environments.base": (
        "TEXT_TURN",
        "Attackable",
        "BridgeFailure",
        "Environment",
        "GoalFinder",
        "NearMisser",
        "Observation",
        "OpeningProvider",
        "OutcomeTeller",
        "Replier",
        "Restorable",
        "Solver",
        "TaskMaker",
        "ToolError",
        "VariantMaker",
        "function_tool",
        "play_calls",
        "spread_tasks",
    ),
    "tracewheel.environments.running": ("SharesResources",),
    "tracewheel.evaluation.changes": ("changed_tasks",),
    "tracewheel.evaluation.evaluate": ("evaluate_split",),
    "tracewheel.evaluation.family_differences": ("paired_differences",),
    "tracewheel.evaluation.gate_stage": ("decide_gate",),
    "tracewheel.evaluation.idle_reward": ("idle_reward",),
    "tracewheel.evaluation.ranking": (
        "Evaluation",
        "comparable_rates",
    ),
    "tracewheel.evaluation.wording": (
        "gain_of",
        "in_words",
    ),
    "tracewheel.gateway.conversation_log": ("ConversationLog",),
    "tracewheel.gateway.server": ("AppServer",),
    "tracewheel.learner.rescoring": ("rescored",),
    "tracewheel.learner.scored_trajectories": ("read_scored_trajectories",),
    "tracewheel.learner.update": ("update",),
    "tracewheel.learner.update_files": ("UpdateFiles",),
    "tracewheel.learner.warm_start.stage": ("warm_start",),
    "tracewheel.operations.batches": (
        "Batch",
        "LogPart",
        "screened_batches",
    ),
    "tracewheel.policy.adapter_check": ("check_adapter_files",),
    "tracewheel.policy.adapters": (
        "PolicyRef",
        "base_folder",
        "base_hash",
        "digests_of",
        "policy_of",
        "weights_folder",
        "write_full_model",
    ),
    "tracewheel.policy.loading": (
        "load_base",
        "load_for_generation",
    ),
    "tracewheel.policy.probe": (
        "probe_logprobs",
        "write_probe",
    ),
    "tracewheel.policy.saving": ("save_adapter",),
    "tracewheel.report.document": (
        "Quote",
        "Section",
        "Table",
    ),
    "tracewheel.report.finished_run": ("FinishedRun",),
    "tracewheel.rollout.episode": ("EpisodeSpec",),
    "tracewheel.rollout.fleet": ("ConsecutiveDeaths",),
    "tracewheel.rollout.orders": ("Order",),
    "tracewheel.rollout.rollout": (
        "episode_pool",
        "roll_out",
    ),
    "tracewheel.rollout.trajectory_queue": ("TrajectoryQueue",),
    "tracewheel.rollout.worker": (
        "work",
        "worker_code",
    ),
    "tracewheel.sampling.curriculum": ("make_sampler",),
    "tracewheel.sampling.sampler": (
        "TaskSampler",
        "observe_scores",
    ),
    "tracewheel.scoring.rubric": ("success_of",),
    "tracewheel.scoring.score": (
        "read_scores",
        "score",
    ),
    "tracewheel.scoring.verifiers": (
        "make_verifier",
        "verdict_of",
    ),
    "tracewheel.scoring.verifiers.base": (
        "EpisodeVerifier",
        "GradedVerifier",
        "Verifier",
        "spoken",
    ),
    "tracewheel.scoring.verifiers.episode": (
        "Episode",
        "EpisodeCall",
        "Verdict",
        "episode_from",
    ),
    "tracewheel.teacher.baseline": ("evaluate_endpoint",),
    "tracewheel.traces.discovery": ("is_log_name",),
    "tracewheel.traces.forgotten": ("list_with_adapter",),
    "tracewheel.traces.ingest": ("ingest",),
    "tracewheel.traces.json_cutter": ("Piece",),
    "tracewheel.traces.quarantine": (
        "InvalidRecord",
        "Quarantined",
    ),
    "tracewheel.traces.readers.building": ("build_trace",),
    "tracewheel.traces.readers.content": (
        "Content",
        "as_text",
        "identity_of",
        "read_parts",
        "tool_call",
    ),
    "tracewheel.traces.readers.conversation": (
        "history_hashes",
        "message_key",
    ),
    "tracewheel.traces.readers.dialects": (
        "ROLE_NAMES",
        "as_chat",
        "is_chat_message",
        "parsed_json",
        "tie_calls",
    ),
    "tracewheel.traces.readers.fields": (
        "field_value",
        "list_field",
        "message_list",
        "nanoseconds",
        "object_field",
        "reward_field",
        "text_field",
    ),
    "tracewheel.traces.readers.openai": ("openai_messages",),
    "tracewheel.traces.readers.plugins": ("TraceReader",),
    "tracewheel.traces.readers.reader": (
        "Part",
        "Place",
        "RawTrace",
        "Reader",
        "SessionLine",
        "Signs",
    ),
    "tracewheel.traces.readers.tools": ("as_tools",),
    "tracewheel.traces.readers.unread": (
        "check_stored",
        "is_blank",
        "texts_of",
    ),
    "tracewheel.traces.redaction.redactor": ("Redactor",),
    "tracewheel.traces.sources": ("Source",),
}
_MODULES = {name: module for module, names in PUBLIC.items() for name in names}

__all__ = ["__version__", *_MODULES]  # noqa: PLE0604 (they are strings)

wait_briefly()  # before torch is imported, which reads it


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'tracewheel' has no attribute '{name}'")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
