"""The records that flow through the pipeline: immutable, versioned, with content-hash ids.

`Trace` (what was logged) -> `Task` (what to solve) -> `Trajectory` (what a policy did, token by
token) -> `Score` (what a verifier says of it). Each is a frozen dataclass that turns into a plain
dict of JSON types with `to_record` and back with `from_record`, so that pandas reads every stored
file directly. Nested values whose keys vary (file trees, goals, tool arguments) are stored as JSON
text in Parquet, because columnar files want one schema for all rows.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self

SCHEMA_VERSION = 1
TRACE_SCHEMA_VERSION = 2

StopReason = Literal["finished", "no_tool_call", "max_turns", "max_tokens", "infrastructure_failed"]
ScoreStatus = Literal["scored", "unscored", "infrastructure_failed"]


def canonical_json(value: Any) -> str:
    """JSON text with sorted keys and no spare whitespace: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def content_hash(value: Any, length: int = 16) -> str:
    """Hexadecimal SHA-256 of the canonical JSON of `value`, cut to `length` digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:length]


class Record:
    """Conversion between a dataclass and a flat row. `JSON_FIELDS` are stored as JSON text."""

    JSON_FIELDS: frozenset[str] = frozenset()

    def to_record(self) -> dict[str, Any]:
        row = {}
        for spec in fields(self):  # type: ignore[arg-type]
            value = getattr(self, spec.name)
            row[spec.name] = canonical_json(value) if spec.name in self.JSON_FIELDS else value
        return row

    @classmethod
    def from_record(cls, row: Mapping[str, Any]) -> Self:
        values = {}
        for spec in fields(cls):  # type: ignore[arg-type]
            if spec.name not in row:
                continue
            value = row[spec.name]
            if spec.name in cls.JSON_FIELDS:
                value = json.loads(value)
            elif hasattr(value, "tolist"):
                value = value.tolist()
            values[spec.name] = value
        return cls(**values)


@dataclass(frozen=True)
class Trace(Record):
    """One logged conversation of a deployed agent.

    `messages` and `tools` are in OpenAI chat format. `outcome` is the logged reward, None when the
    log has none (which is unscored, not 0). `environment` is the logged starting point, when the
    log has one, so that the episode can be replayed: kind, initial state, goal.

    `format` is the reader that understood the log. Traces of one `task` (the log's own name for it) are
    attempts at the same thing. `tools_inferred` says that the log had no schemas and `tools` was made of the
    calls seen. `tokens`, where logged, has `token_ids`, `logprobs` and `action_mask`, all of the same
    length. `info` is what else the log says that is worth keeping.
    """

    JSON_FIELDS = frozenset({"messages", "tools", "environment", "tokens", "info"})

    id: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    environment: dict[str, Any] | None
    session: str | None
    user: str | None
    created: str | None
    model: str | None
    outcome: float | None
    source_file: str
    source_line: int
    format: str = "openai"
    task: str | None = None
    tools_inferred: bool = False
    tokens: dict[str, Any] | None = None
    info: dict[str, Any] = field(default_factory=dict)
    schema_version: int = TRACE_SCHEMA_VERSION

    @classmethod
    def from_record(cls, row: Mapping[str, Any]) -> Self:
        """The trace of a row; pandas' mark of a missing value (NaN) is None."""
        missing = {name: None for name, value in row.items() if isinstance(value, float) and value != value}
        return super().from_record({**row, **missing})


@dataclass(frozen=True)
class Task(Record):
    """What an agent has to do, and what its verifier needs to know.

    `prompt` is all that the policy sees. `initial_state` builds the environment. `goal` is for the
    verifier alone: it never enters a prompt or an observation. `fingerprint` is equal for two tasks
    that ask the same thing of the same starting point.
    """

    JSON_FIELDS = frozenset({"initial_state", "goal"})

    id: str
    environment: str
    family: str
    tier: int
    prompt: str
    initial_state: dict[str, Any]
    goal: dict[str, Any]
    verifier: str
    fingerprint: str
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True)
class Turn:
    """One assistant turn of a trajectory: tokens `[start, end)` are what the policy sampled.

    The `forced` tokens before `start` belong to the turn too, but exploration chose them, not the policy.
    `policy_version` is that of the first token; `changes` says where in the trajectory, and to which version,
    it changed within the turn, because new weights came in the middle of it.
    """

    start: int
    end: int
    calls: int
    malformed: int
    policy_version: int
    forced: int = 0
    changes: list[list[int]] = field(default_factory=list)

    @property
    def oldest_version(self) -> int:
        return min([self.policy_version, *(version for _, version in self.changes)])


@dataclass(frozen=True)
class Trajectory(Record):
    """One episode of a policy, as sampled.

    Invariant: `token_ids`, `action_mask` and `logprobs` have the same length T. `action_mask[t]` is
    1 where the policy sampled token t and 0 for prompt, observation and forced tokens; `logprobs[t]` is the
    behaviour log-probability at sampling time (temperature applied, before top-p), 0.0 where the
    mask is 0. `turns` says which policy version sampled each stretch; `policy_version` is the oldest
    of them. `group` ties the trajectories of one task in one iteration together.
    """

    JSON_FIELDS = frozenset({"turns", "final_state", "messages"})

    id: str
    task_id: str
    group: str
    sample: int
    seed: int
    policy_version: int
    temperature: float
    token_ids: list[int]
    action_mask: list[int]
    logprobs: list[float]
    turns: list[dict[str, Any]]
    final_state: dict[str, Any]
    messages: list[dict[str, Any]]
    stop_reason: StopReason
    detail: str = ""
    schema_version: int = SCHEMA_VERSION

    def token_versions(self) -> list[int]:
        """The policy version that sampled each of the T tokens, -1 where none did."""
        return token_versions(self.turns, len(self.token_ids))


def token_versions(turns: list[dict[str, Any]], length: int) -> list[int]:
    """The policy version that sampled each token of a trajectory of `length` tokens, -1 where none did.

    Args:
        turns: As a trajectory has them.
        length: T, how many tokens it has.
    """
    versions = [-1] * length
    for turn in turns:
        bounds = [[turn["start"], turn["policy_version"]], *turn.get("changes", []), [turn["end"], -1]]
        for (start, version), (end, _) in itertools.pairwise(bounds):
            versions[start:end] = [version] * (end - start)
    return versions


def first_turn(messages: Sequence[Mapping[str, Any]], turns: Sequence[Any]) -> int:
    """Position of the first message that an episode's own turns said; all before it is context.

    An episode may begin in the middle of a conversation, where others have spoken as the assistant. Its own turns are
    the last assistant messages, one for each. Without a turn all messages are context.

    Args:
        messages: As a trajectory has them.
        turns: The same episode's.
    """
    spoken = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    own = spoken[max(0, len(spoken) - len(turns)) :]
    return own[0] if own else len(messages)


@dataclass(frozen=True)
class Score(Record):
    """What a verifier says of a trajectory. `total` is None unless `status` is "scored".

    `family` is the task's. `turn_rewards` has one number for each of the trajectory's turns, which sum to
    the total before penalties; None when the rubric gives none.
    """

    JSON_FIELDS = frozenset({"breakdown"})

    trajectory_id: str
    task_id: str
    group: str
    status: ScoreStatus
    total: float | None
    breakdown: dict[str, float] = field(default_factory=dict)
    detail: str = ""
    family: str = ""
    turn_rewards: list[float] | None = None
    schema_version: int = SCHEMA_VERSION
