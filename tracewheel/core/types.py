"""The records that flow through the pipeline: immutable, versioned, with content-hash ids.

`Trace` (what was logged) -> `Task` (what to solve) -> `Trajectory` (what a policy did, token by token) -> `Score` (a
verifier's result). Each is a frozen dataclass; `to_record` turns it into a dict of JSON types and `from_record` back, so
that pandas reads every stored file directly. Nested values with varying keys (file trees, goals, tool arguments) are
stored as JSON text, because Parquet needs one schema for all rows.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self, get_args

from tracewheel.core.forks import read_forks

SCHEMA_VERSION = 1
# Beside `trajectories.parquet`: the greedy episode of each task, played for its reward alone.
TRAJECTORIES_FILE, GREEDY_FILE = "trajectories.parquet", "greedy.parquet"
VARIANTS_FILE = "variants.parquet"  # tasks of a rollout that curation did not make
TRACE_SCHEMA_VERSION = 2

StopReason = Literal[
    "finished", "no_tool_call", "max_turns", "max_tokens", "user_failed", "harness_failed", "infrastructure_failed"
]
# Who is to blame for an episode that went wrong; only `model` and `harness` can be the policy's fault.
Fault = Literal["", "model", "harness", "environment", "tool", "user", "judge", "machine"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
POLICY_FAULTS: tuple[Fault, ...] = ("", "model", "harness")
INFRASTRUCTURE_FAILED: StopReason = "infrastructure_failed"
# Why a branch of a program's histories parted: the same request once more; another message after the same turn; another system
# prompt, toolset or agent; another first message; a reply without its thinking, or changed otherwise; turns left out; other
# tools; the chat template renders earlier turns in another way.
BranchReason = Literal[
    "",
    "retry",
    "parallel",
    "sub_agent",
    "side_request",
    "new_conversation",
    "thinking_stripped",
    "edited",
    "compaction",
    "tools_changed",
    "template",
]
ScoreStatus = Literal["scored", "unscored", "infrastructure_failed"]


def canonical_json(value: Any) -> str:
    """JSON text with sorted keys and no whitespace, for hashing and comparing only: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def stored_json(value: Any) -> str:
    """JSON text without whitespace, its keys in the order given, in which an environment may reply."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def content_hash(value: Any, length: int = 16) -> str:
    """Hexadecimal SHA-256 of the canonical JSON of `value`, truncated to `length` digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:length]


class Record:
    """Conversion between a dataclass and a flat row. `JSON_FIELDS` are stored as JSON text."""

    JSON_FIELDS: frozenset[str] = frozenset()
    # Left out of the row where they are empty, so that files without them stay as they were.
    OPTIONAL_FIELDS: frozenset[str] = frozenset()

    def to_record(self) -> dict[str, Any]:
        row = {}
        for spec in fields(self):  # type: ignore[arg-type]
            value = getattr(self, spec.name)
            if not value and spec.name in self.OPTIONAL_FIELDS:
                continue
            row[spec.name] = stored_json(value) if spec.name in self.JSON_FIELDS else value
        return row

    @classmethod
    def from_record(cls, row: Mapping[str, Any]) -> Self:
        values = {}
        for spec in fields(cls):  # type: ignore[arg-type]
            if spec.name not in row:
                continue
            value = row[spec.name]
            if spec.name in cls.OPTIONAL_FIELDS and (value is None or value != value):  # NaN: other rows of its file have it
                continue
            if spec.name in cls.JSON_FIELDS:
                value = json.loads(value)
            elif hasattr(value, "tolist"):
                value = value.tolist()
            values[spec.name] = value
        return cls(**values)


@dataclass(frozen=True)
class Trace(Record):
    """One logged conversation of a deployed agent.

    `messages` and `tools` are in OpenAI chat format. `outcome` is the logged reward, or None without one (unscored, not
    0). `environment` is the logged starting point, where there is one, for replays: kind, initial state, goal.

    `format` is the reader that parsed the log. `task` is the log's name of the task; traces with the same name are attempts
    at the same task. `tools_inferred`: the log had no schemas, and `tools` was inferred from the calls. `tokens`, where
    logged, has `token_ids`, `logprobs` and `action_mask` of equal length. `info` holds other logged data.
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
        """The trace of a row, with None for pandas' missing values (NaN)."""
        missing = {name: None for name, value in row.items() if isinstance(value, float) and value != value}
        return super().from_record({**row, **missing})


@dataclass(frozen=True)
class Task(Record):
    """A task for an agent, with the goal that its verifier checks.

    The policy sees only `prompt`. `initial_state` builds the environment. `goal` is for the verifier alone and never enters
    a prompt or an observation. Two tasks with the same goal and starting point have the same `fingerprint`.
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
    """One assistant turn of a trajectory; the policy sampled tokens `[start, end)`.

    The `forced` tokens before `start` also belong to the turn, but exploration chose them. `policy_version` is that of the
    first token. `changes` lists (position in the trajectory, new version) where weights were updated within the turn.
    `reward` is the sum of the process rewards that the environment returned for the turn's calls; None without any, and the
    stored turn then has no such key. `errors` are the numbers of the calls that failed although their replies do not begin
    as an error does; a stored turn without any has no such key.

    `credit` says whom the episode's reward is for, in the same way: None is every turn, "" is not this one, and the name of an
    agent is this agent's share (`rollout.harness.credit`).

    `grammar` names the trajectory's grammar that the turn was held to, None for none: its tokens were drawn from those that the
    grammar allows, and their log-probabilities are those among them.
    """

    start: int
    end: int
    calls: int
    malformed: int
    policy_version: int
    forced: int = 0
    changes: list[list[int]] = field(default_factory=list)
    reward: float | None = None
    credit: str | None = None
    errors: list[int] = field(default_factory=list)
    grammar: str | None = None

    def to_record(self) -> dict[str, Any]:
        """The turn as it is stored, without `reward`, `credit`, `errors` and `grammar` where there are none."""
        optional = ("reward", "credit", "errors", "grammar")
        return {name: value for name, value in vars(self).items() if name not in optional or value not in (None, [])}

    @property
    def oldest_version(self) -> int:
        return min([self.policy_version, *(version for _, version in self.changes)])


@dataclass(frozen=True)
class Trajectory(Record):
    """One sampled episode.

    Invariant: `token_ids`, `action_mask` and `logprobs` have the same length T. `action_mask[t]` is 1 where the policy
    sampled token t, and 0 for prompt, observation and forced tokens. `logprobs[t]` is the behaviour log-probability
    (temperature applied, before top-p), 0.0 where the mask is 0. `turns` hold the policy version of each turn;
    `policy_version` is the oldest of them. The trajectories of one task in one iteration share a `group`.

    Each token is stored once. Where the chat template rewrote earlier turns, `forks` says which token a stretch of tokens
    follows instead of the one before it (`tracewheel/core/forks.py`); a turn's `start` and `end` are flat indices.

    An agent that brings its own loop may send histories that part. Then `branches` has an entry for each of them, the main
    agent's first, then in the order in which they began: `reason`, why it parted from what was said before ("" for the first);
    `turns`, the numbers of the turns sampled in it; `messages`, its whole conversation; and `agent`, the name the program gave
    it. `messages` is the conversation of the main agent's last turn. `requests` counts what the program asked: `asked`,
    `refused`, `unmatched` (with assistant messages that the policy did not say), `dropped.WHAT` and `refused.FIELD` (with what
    the policy was not given, or what was wrong), and `lost_tokens`, sampled for answers that nobody waited for any more.

    `grammars` are those that turns were held to, by the names that turns give them (`tracewheel/chat/grammar.py`).

    `fault` says who is to blame for an episode that went wrong, `traceback` holds the exception. `played_in` is its
    environment, as text, where that need not be its task's: groups that one iteration claims may meet noise of several.
    """

    JSON_FIELDS = frozenset({"turns", "final_state", "messages", "forks", "branches", "requests", "grammars"})
    OPTIONAL_FIELDS = frozenset({"branches", "requests", "grammars", "fault", "traceback", "played_in"})

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
    forks: list[list[int]] = field(default_factory=list)
    branches: list[dict[str, Any]] = field(default_factory=list)
    requests: dict[str, int] = field(default_factory=dict)
    grammars: dict[str, Any] = field(default_factory=dict)
    fault: Fault = ""
    traceback: str = ""
    played_in: str = ""
    schema_version: int = SCHEMA_VERSION

    @classmethod
    def from_record(cls, row: Mapping[str, Any]) -> Self:
        """The trajectory of a row; one that was stored before there were forks has none."""
        return super().from_record({**row, "forks": canonical_json(read_forks(row.get("forks")))})

    def token_versions(self) -> list[int]:
        """The policy version that sampled each of the T tokens, -1 for other tokens."""
        return token_versions(self.turns, len(self.token_ids))


def token_versions(turns: list[dict[str, Any]], length: int) -> list[int]:
    """The policy version that sampled each token of a trajectory, -1 for other tokens.

    Args:
        turns: The turns of a trajectory.
        length: T, its number of tokens.
    """
    versions = [-1] * length
    for turn in turns:
        bounds = [[turn["start"], turn["policy_version"]], *turn.get("changes", []), [turn["end"], -1]]
        for (start, version), (end, _) in itertools.pairwise(bounds):
            versions[start:end] = [version] * (end - start)
    return versions


def not_failed(trajectories: Iterable[Trajectory]) -> list[Trajectory]:
    """The episodes that ran to their end. One that the infrastructure failed is left out of every figure but counts."""
    return [trajectory for trajectory in trajectories if trajectory.stop_reason != INFRASTRUCTURE_FAILED]


def first_turn(messages: Sequence[Mapping[str, Any]], turns: Sequence[Any]) -> int:
    """Position of the first message of an episode's own turns; the messages before it are context.

    An episode may begin in the middle of a conversation that has earlier assistant messages. Its own turns are the last
    assistant messages. Without turns all messages are context.

    Args:
        messages: The messages of a trajectory.
        turns: Its turns.
    """
    assistant = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    own = assistant[max(0, len(assistant) - len(turns)) :]
    return own[0] if own else len(messages)


@dataclass(frozen=True)
class Score(Record):
    """The score of a trajectory. `total` is None unless `status` is "scored".

    `family` is the task family. `turn_rewards` has one number for each turn, which sum to the total before penalties; None
    where neither the rubric nor the environment gives any. `environment` is the task's kind of environment, in files of tasks
    of several. `baseline` is the total of the task's greedy episode, where one
    was played and scored. `answer` is what the verifier took for the agent's answer, `explanation` why it scored as it did.
    `fault` says whose fault it is that an episode is unscored, where its verifier knows: a judge that gives no verdict.
    """

    JSON_FIELDS = frozenset({"breakdown"})
    OPTIONAL_FIELDS = frozenset({"answer", "explanation", "environment", "fault"})

    trajectory_id: str
    task_id: str
    group: str
    status: ScoreStatus
    total: float | None
    breakdown: dict[str, float] = field(default_factory=dict)
    detail: str = ""
    family: str = ""
    turn_rewards: list[float] | None = None
    baseline: float | None = None
    answer: str = ""
    explanation: str = ""
    environment: str = ""
    fault: Fault = ""
    schema_version: int = SCHEMA_VERSION
