"""Who plays under a prompt: the profile's engine, or the model behind the profile's `baseline`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from tracewheel import (
    BaselineSections,
    ConfigError,
    EvaluateSections,
    PolicyRef,
    RetrainConfig,
    RolloutSections,
    Score,
    ScoreSections,
    Task,
    Trajectory,
    digest_of,
    evaluate_endpoint,
    evaluate_split,
    load_tasks,
    read_records,
    read_scores,
    read_table,
    roll_out,
    score,
)
from tracewheel_prompts.held_out import check_prompt
from tracewheel_prompts.prompt import Prompt

Profile: TypeAlias = RetrainConfig | EvaluateSections
P = TypeVar("P", RetrainConfig, EvaluateSections)


class Episode(NamedTuple):
    """An episode, its score, and the tokens that the policy sampled."""

    trajectory: Trajectory
    score: Score
    tokens: int


def prompted(config: P, prompt: Prompt) -> P:
    """The profile with a prompt around its environment, or in place of the one that is there."""
    spec = prompt.environment(*within(config))
    section = type(config.environment).model_validate({**config.environment.model_dump(), **spec})
    return config.model_copy(update={"environment": section})


def start_of(config: Profile) -> Prompt | None:
    """The prompt that the profile's environment has already; None where it has none."""
    section = config.environment
    return Prompt.model_validate(section.args.get("prompt", {})) if section.kind == "prompted" else None


def check_start(config: Profile, curated: Path) -> None:
    """Check that the profile's own prompt holds no task outside training, also where curation did not know it.

    Raises:
        LeakError: it does.
    """
    if start := start_of(config):
        check_prompt(start, curated)


def within(config: Profile) -> tuple[str, dict[str, Any]]:
    """Kind and arguments of the environment that a prompt is around, or would be."""
    section = config.environment
    if section.kind != "prompted":
        return section.kind, section.args
    return section.args["environment"]["kind"], section.args["environment"].get("args", {})


class Player(Protocol):
    """A policy that plays under prompts."""

    config: Any  # `RetrainConfig`, or of a stage its sections
    identity: str
    most_tokens: int  # of an episode

    def play(self, prompt: Prompt, tasks: Sequence[Task]) -> list[Episode]:
        """`samples` episodes of each task, with their scores."""
        ...

    def evaluate(self, prompt: Prompt, split: str, only: Sequence[str] | None, out: Path) -> dict[str, Any]:
        """Evaluate on a split, as the gate reads it."""
        ...


class _Player:
    def __init__(self, config: Any, curated: Path, samples: int, seed: int) -> None:
        if config.rollout.harness is not None:
            raise ConfigError("rollout.harness: a program brings its own prompt; optimise without it")
        self.config, self.curated, self.samples, self.seed = config, curated, samples, seed

    def _asked(self, prompt: Prompt, tasks: Sequence[Task]) -> tuple[Any, list[Task]]:
        config = prompted(self.config, prompt)
        return config, [replace(task, environment=config.environment.spec) for task in tasks]


class LocalPlayer(_Player):
    """The profile's engine with a policy. Every prompt meets the same random numbers."""

    def __init__(self, config: Profile, policy: PolicyRef, curated: Path, samples: int, seed: int) -> None:
        super().__init__(config, curated, samples, seed)
        self.policy = policy
        self.identity = digest_of(Path(policy.adapter)) if policy.adapter else "base"
        self.most_tokens = config.rollout.max_tokens

    def play(self, prompt: Prompt, tasks: Sequence[Task]) -> list[Episode]:
        config, asked = self._asked(prompt, tasks)
        sections = RolloutSections.of(config)
        sampling = {"temperature": config.evaluation.temperature, "top_p": config.evaluation.top_p}
        plain = {"exploration": type(config.rollout.exploration)(), "group_size": self.samples, **sampling}
        sections = sections.model_copy(update={"rollout": config.rollout.model_copy(update=plain)})
        with tempfile.TemporaryDirectory(prefix="prompt-") as folder:
            out = Path(folder)
            ids = [task.id for task in asked]
            roll_out(sections, self.policy, self.curated, ids, out, iteration=self.seed, variants=asked)
            score(ScoreSections.of(config), asked, out / "trajectories.parquet", out / "scores")
            return _read(out, out / "scores")

    def evaluate(self, prompt: Prompt, split: str, only: Sequence[str] | None, out: Path) -> dict[str, Any]:
        config = prompted(self.config, prompt)
        with tempfile.TemporaryDirectory(prefix="prompt-") as folder:
            view = curated_under(self.curated, config.environment.spec, Path(folder))
            return evaluate_split(EvaluateSections.of(config), self.policy, view, split, out, only=only)


class EndpointPlayer(_Player):
    """The model behind the profile's `baseline`."""

    def __init__(self, config: RetrainConfig, curated: Path, samples: int, seed: int) -> None:
        super().__init__(config, curated, samples, seed)
        if config.baseline is None:
            raise ConfigError("baseline: the profile has none; set baseline.endpoint and baseline.model")
        self.identity = f"{config.baseline.endpoint} {config.baseline.model}"
        self.most_tokens = config.baseline.max_turn_tokens * config.rollout.max_turns

    def play(self, prompt: Prompt, tasks: Sequence[Task]) -> list[Episode]:
        config, asked = self._asked(prompt, tasks)
        with tempfile.TemporaryDirectory(prefix="prompt-") as folder:
            out, journal = Path(folder) / "out", Path(folder) / "journal"
            evaluate_endpoint(BaselineSections.of(config), asked, out, samples=self.samples, journal=journal, greedy=False)
            took = read_table(out / "attempts.parquet", ["trajectory_id", "completion_tokens"])
            tokens = dict(zip(took["trajectory_id"], took["completion_tokens"], strict=True))
            return _read(out / "sampled", out / "sampled", tokens)

    def evaluate(self, prompt: Prompt, split: str, only: Sequence[str] | None, out: Path) -> dict[str, Any]:
        tasks = [task for task in load_tasks(self.curated, split) if only is None or task.id in only]
        config, asked = self._asked(prompt, tasks)
        with tempfile.TemporaryDirectory(prefix="prompt-") as folder:
            journal, samples = Path(folder) / "journal", config.evaluation.samples
            return evaluate_endpoint(BaselineSections.of(config), asked, out, samples=samples, journal=journal)[0]


def curated_under(curated: Path, environment: str, folder: Path) -> Path:
    """Write the tasks of a curated folder in an environment, a kind as text: same ids, splits and components."""
    table = read_table(curated / "tasks.parquet")
    table["environment"] = environment
    table.to_parquet(folder / "tasks.parquet", index=False)
    return folder


def _read(folder: Path, scores: Path, tokens: Mapping[str, int] | None = None) -> list[Episode]:
    trajectories = read_records(folder / "trajectories.parquet", Trajectory)
    return [
        Episode(played, judged, int(tokens[played.id]) if tokens else sum(played.action_mask))
        for played, judged in zip(trajectories, read_scores(scores / "scores.parquet"), strict=True)
    ]
