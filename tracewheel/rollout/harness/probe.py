"""One episode of a program before anything is trained: what it asks for, and whether the caps let it ask at all."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracewheel.core.errors import ConfigError
from tracewheel.core.types import Task, Trajectory
from tracewheel.engines.base import Generation, Request
from tracewheel.policy.limits import window_of
from tracewheel.rollout.episode import EpisodeSpec
from tracewheel.rollout.harness.pool import HarnessPool
from tracewheel.rollout.harness.starting import Starter
from tracewheel.rollout.rollout import with_threads

if TYPE_CHECKING:
    from tracewheel.chat.renderer import ChatRenderer
    from tracewheel.config.sections import RolloutSections
    from tracewheel.policy.adapters import PolicyRef

SAYS = "I am ready."  # a policy without weights: the probe is about the program
ROOM, REQUESTS, SECONDS = 1_000_000, 20, 120.0  # of the probe, whatever the profile's caps are
STEP = 1024  # tokens that a proposed cap is a multiple of
TURN = 512  # tokens of a turn in which a program with a long prompt can write a small file
SHOWN = 8  # tools


class _SaysOneThing:
    """An engine that says the same text at each turn, and computes nothing."""

    policy_version = 0

    def __init__(self, renderer: ChatRenderer) -> None:
        self._ids = [*renderer.plain_text.encode(renderer.plain_text.mark(SAYS), after=""), renderer.end_of_turn_id]
        self._asked: deque[Request] = deque()

    @property
    def idle(self) -> bool:
        return not self._asked

    def submit(self, request: Request) -> None:
        self._asked.append(request)

    def step(self) -> list[Generation]:
        request = self._asked.popleft()
        return [Generation(request.session, self._ids, [0.0] * len(self._ids), "stop", [0] * len(self._ids))]

    def close(self, session: int) -> None: ...

    def update_weights(self, policy: PolicyRef) -> None: ...


@dataclass(frozen=True)
class Probed:
    """What a program asked of a policy that says nothing of use.

    Attributes:
        episode: Its record.
        first: Tokens of its first request, 0 without one.
        largest: Tokens of its largest.
        tools: The names of the tools that it offered.
    """

    episode: Trajectory
    first: int
    largest: int
    tools: tuple[str, ...]

    def says(self) -> str:
        """For people, in a line."""
        asked = self.episode.requests
        told = [f"{asked['asked']} requests, the first of {self.first} tokens, the largest of {self.largest}"]
        names = ", ".join(self.tools[:SHOWN]) + (", …" if len(self.tools) > SHOWN else "")
        told.append(f"{len(self.tools)} tools ({names})" if self.tools else "no tools")
        for kind, what in (("dropped", "left out"), ("refused", "refused")):
            if found := _of_kind(asked, kind):
                told.append(f"{what}: {found}")
        return f"{'; '.join(told)}; ended: {self.episode.detail or self.episode.stop_reason}"

    def caps(self, config: RolloutSections) -> dict[str, int]:
        """Settings of `rollout` that leave room for its largest request (a title may come first); none where there is.

        Raises:
            ConfigError: the base's window is too short for it.
        """
        return proposed_caps(self.largest, config)


def probe(config: RolloutSections, tasks: Iterable[Task]) -> Probed:
    """Start the program once, on the first task, before a policy that says nothing of use.

    Raises:
        ConfigError: the program cannot be started, gets no answer, or its first request is over the caps.
    """
    probed = probe_program(config, next(iter(tasks)))
    if caps := proposed_caps(probed.first, config):
        told = " and ".join(f"rollout.{name} to {value}" for name, value in caps.items())
        raise ConfigError(f"{_too_long(probed.first, config)}: set {told}, so that its turns and results find room, too")
    return probed


def probe_program(config: RolloutSections, task: Task) -> Probed:
    """What the program of a profile asks a policy that says nothing of use, whatever the profile's caps are.

    Raises:
        ConfigError: the program cannot be started, or gets no answer.
    """
    rollout = config.rollout
    assert rollout.harness is not None
    Starter(rollout.harness)  # said before torch is imported: there is no such program
    from tracewheel.policy.loading import policy_renderer

    renderer = policy_renderer(config.policy)
    limits = {"seconds": min(SECONDS, rollout.harness.seconds), "max_requests": REQUESTS}
    caps = {"max_tokens": ROOM, "max_turns": REQUESTS, "harness": rollout.harness.model_copy(update=limits)}
    with HarnessPool(
        _SaysOneThing(renderer), renderer, with_threads(rollout.model_copy(update=caps), [task.environment], 1)
    ) as pool:
        pool.begin(0, EpisodeSpec(task, 0, 0, rollout.temperature))
        live = pool.live(0)
        ended: list[tuple[int, Trajectory]] = []
        while not ended:
            ended = pool.step()
    probed = Probed(ended[0][1], live.first, live.largest, tuple(sorted(live.tools)))
    if not probed.episode.turns:
        refused = _of_kind(probed.episode.requests, "refused")
        why = f"\nrefused by the gateway, by field: {refused}" if refused else ""
        raise ConfigError(f"rollout.harness.command: {probed.episode.detail}{why}")
    return probed


def proposed_caps(tokens: int, config: RolloutSections) -> dict[str, int]:
    """Settings of `rollout` that leave room for a program with a request of so many tokens; none where the profile's do.

    Raises:
        ConfigError: the base's window is too short for it.
    """
    rollout, window = config.rollout, window_of(config.policy.base)
    if tokens + rollout.max_turn_tokens <= rollout.max_tokens:
        return {}
    if window and tokens + rollout.max_turn_tokens > window:
        raise ConfigError(
            f"{_too_long(tokens, config)}; the base's window is {window}: use a base with a longer one, or a shorter prompt"
        )
    turn = max(rollout.max_turn_tokens, min(TURN, window - tokens) if window else TURN)
    needed = tokens + turn
    cap = -(-2 * needed // STEP) * STEP  # as much again for its turns and what its tools say
    caps = {"max_tokens": min(cap, window) if window else cap}
    return caps if turn == rollout.max_turn_tokens else {**caps, "max_turn_tokens": turn}


def _too_long(tokens: int, config: RolloutSections) -> str:
    most, turn = config.rollout.max_tokens, config.rollout.max_turn_tokens
    if tokens <= most:
        return (
            f"the program asks with {tokens} tokens and a turn may have {turn} (rollout.max_turn_tokens), more than "
            f"rollout.max_tokens, {most}"
        )
    return f"the program asks with {tokens} tokens, and rollout.max_tokens is {most}"


def _of_kind(asked: dict[str, int], kind: str) -> str:
    found = {name.partition(".")[2]: count for name, count in asked.items() if name.startswith(f"{kind}.")}
    return ", ".join(f"{name} ({count})" for name, count in sorted(found.items()))
