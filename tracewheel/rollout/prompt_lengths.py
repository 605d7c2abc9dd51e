"""Whether the prompts of a run's tasks leave room for an episode, before anything is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracewheel.config import RolloutSections
from tracewheel.core.errors import ConfigError
from tracewheel.core.types import Task
from tracewheel.policy.limits import window_of
from tracewheel.rollout.episode import EpisodeLimits, Message, PolicyTurn, Stop, play, run_alone
from tracewheel.rollout.rollout import tool_threads

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer

# An environment may take seconds to open, so only the tasks with the longest texts are opened.
MOST_OPENED = 32
# The share of tasks up to which prompts without room are what they are in the middle of a run: failed episodes.
TOLERATED = 0.05


class _PromptLength:
    """A transcript that ends an episode with its prompt."""

    def __init__(self, renderer: ChatRenderer) -> None:
        self._renderer = renderer
        self.tokens: int | None = None

    def open(self, messages: list[Message], tools: list[dict[str, Any]]) -> Stop:
        self.tokens = len(self._renderer.prompt_ids(messages, tools))
        return Stop("budget")

    def add_turn(self, reply: Any) -> PolicyTurn:
        raise AssertionError("an episode that ends with its prompt has no turn")

    def add_results(self, results: list[Message], *, interrupted: bool) -> None: ...

    def observe(self, results: list[Message]) -> None: ...


def prompt_lengths(config: RolloutSections, tasks: list[Task]) -> dict[str, int]:
    """Tokens of the prompts of the tasks with the longest texts, by task id; tasks whose environment fails are left out."""
    from tracewheel.policy.loading import policy_renderer

    renderer = policy_renderer(config.policy)
    limits = EpisodeLimits(config.rollout.step_seconds, config.rollout.episode_seconds)
    found = {}
    with tool_threads(config.rollout) as tools:
        for task in sorted(tasks, key=lambda task: (-len(task.prompt), task.id))[:MOST_OPENED]:
            transcript = _PromptLength(renderer)
            run_alone(play(task, transcript, max_turns=1, limits=limits), lambda: Stop("budget"), tools)
            if transcript.tokens is not None:
                found[task.id] = transcript.tokens
    return found


def check_prompts(config: RolloutSections, tasks: list[Task]) -> str | None:
    """Check that prompts leave room for a turn of `rollout.max_turn_tokens`.

    Returns:
        A warning, where a few do not; None where all do. Of a program that brings its own prompts, what it asked for.

    Raises:
        ConfigError: more than a twentieth do not, or all; or the program does not come to ask. The message says what to set.
    """
    if config.rollout.harness:  # what a program asks is its own
        from tracewheel.rollout.harness.probe import probe

        return probe(config, tasks).says()
    most, turn = config.rollout.max_tokens, config.rollout.max_turn_tokens
    lengths = prompt_lengths(config, tasks)
    long = [tokens for tokens in lengths.values() if tokens + turn > most]
    if not long:
        return None
    needed = max(long) + turn
    said = (
        f"{len(long)} of the {len(lengths)} tasks with the longest prompts leave no room for a turn: the longest prompt has "
        f"{max(long)} tokens, a turn up to {turn} (rollout.max_turn_tokens), and rollout.max_tokens is {most}"
    )
    if len(long) <= TOLERATED * len(tasks) and len(long) < len(lengths):
        return said
    window = window_of(config.policy.base)
    if window and needed > window:
        raise ConfigError(f"{said}; the base's window is {window}: shorten the prompts, or use a base with a longer window")
    raise ConfigError(f"{said}: set rollout.max_tokens to at least {needed}, and more for further turns")
