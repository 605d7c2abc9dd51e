"""Why an episode of a program ended, whose fault that is, and what is left of it as a trajectory."""

from __future__ import annotations

import functools
import os
import re
import signal
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

from tracewheel.config import RedactionConfig, RolloutConfig
from tracewheel.core.errors import SecretError
from tracewheel.core.forks import positions
from tracewheel.core.strict_json import parse_json
from tracewheel.core.types import INFRASTRUCTURE_FAILED, StopReason, Trajectory, content_hash
from tracewheel.gateway.live_episode import EpisodeTokens
from tracewheel.rollout.episode import Ending, EpisodeSpec, Stop
from tracewheel.rollout.harness.programs import ProgramEnd
from tracewheel.traces.redaction.redactor import Redactor

# What whoever runs the machine sends; a program that ends by another signal has crashed.
FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
PROGRAM = "program"
LARGEST_RESULT = 1 << 20
LINES, LONGEST_LINE = 10, 300  # of what a program said last
_NOISE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
# What no two episodes have in common, so that equal failures have equal words.
_OWN = (
    (re.compile(r"/\S*?/tracewheel-[^/\s]+/\d+"), "$TMPDIR"),
    (re.compile(r"tw-\d+-[\w-]+"), "KEY"),
    (re.compile(r"/e/\d+"), "/e/N"),
)


def stop_of(end: ProgramEnd, tokens: EpisodeTokens, cut_off: bool) -> Stop:
    """Why an episode ended that its environment did not end.

    Args:
        end: How its program ended.
        tokens: What was said.
        cut_off: Whether a token limit cut off its last turn.
    """
    if end.lost:
        return Stop(INFRASTRUCTURE_FAILED, "the process that starts programs was killed", fault="machine")
    if end.killed:
        return Stop("harness_failed", end.killed, fault="harness")
    if end.signal:
        name = signal.Signals(end.signal).name
        if end.signal in FROM_OUTSIDE:
            return Stop(INFRASTRUCTURE_FAILED, f"the program was killed from outside with {name}", fault="machine")
        return Stop("harness_failed", f"the program crashed with {name}", fault="harness")
    if tokens.refused.get("server_error"):
        return Stop(INFRASTRUCTURE_FAILED, "the engine failed at a request", fault="machine")
    if tokens.limit and not tokens.turns:
        return Stop("harness_failed", f"its first request was refused: {tokens.refusal}", fault="harness")
    if tokens.limit:
        return Stop(cast(StopReason, tokens.limit), "the program asked for more than the limit allows", fault="model")
    if end.exit_code:
        return Stop("harness_failed", f"exit code {end.exit_code}{_last_lines(end)}", fault="harness")
    if not tokens.turns:
        count = sum(tokens.refused.values())
        refused = f"; {count} requests were refused, the last: {tokens.refusal}" if count else ""
        return Stop(
            "harness_failed", f"the program never got an answer of the model{refused}{_last_lines(end)}", fault="harness"
        )
    return Stop("max_tokens", fault="model") if cut_off else Stop("finished")


def is_cut_off(tokens: EpisodeTokens, config: RolloutConfig, ends: Collection[int]) -> bool:
    """Whether the last turn has no end because of our limits, and not because the program wanted few tokens."""
    if not tokens.turns or tokens.token_ids[tokens.turns[-1]["end"] - 1] in ends:
        return False
    turn = tokens.turns[-1]
    length = positions(tokens.forks, len(tokens.token_ids))[turn["end"] - 1] + 1
    return turn["end"] - turn["start"] + turn["forced"] >= config.max_turn_tokens or length >= config.max_tokens


def said_state(end: ProgramEnd | None, result: Path) -> dict[str, Any]:
    """What verifiers see of the program itself: `output`, `exit_code`, and `result` where it has written one."""
    state: dict[str, Any] = {"output": end.output if end else "", "exit_code": end.exit_code if end else None}
    try:
        with open(os.open(result, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:  # a program may leave anything
            written = file.read(LARGEST_RESULT + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except OSError:
        return state
    if written is None or len(written) > LARGEST_RESULT:
        return state
    text = written.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    try:
        return {**state, "result": parse_json(text)}
    except ValueError:
        return {**state, "result": text}


def trajectory_of(spec: EpisodeSpec, tokens: EpisodeTokens, ending: Ending, opening: list[dict[str, Any]]) -> Trajectory:
    """The record of an episode that has ended; `opening` are its messages where nothing was said."""
    identity = [spec.task.id, spec.sample, spec.seed, tokens.policy_version, tokens.token_ids]
    return Trajectory(
        id=content_hash(identity),
        task_id=spec.task.id,
        group=spec.task.id,
        sample=spec.sample,
        seed=spec.seed,
        policy_version=tokens.policy_version,
        temperature=spec.temperature,
        token_ids=tokens.token_ids,
        action_mask=tokens.action_mask,
        logprobs=tokens.logprobs,
        turns=ending.with_marks(tokens.turns),
        final_state=ending.final_state or {},
        messages=tokens.messages or opening,
        stop_reason=cast(StopReason, ending.stop.reason),
        detail=ending.stop.detail,
        forks=tokens.forks,
        branches=tokens.branches,
        requests=tokens.requests,
        grammars=tokens.grammars,
        fault=ending.stop.fault,
        traceback=ending.stop.traceback,
    )


def _last_lines(end: ProgramEnd) -> str:
    """The last lines of a program's errors, else of its output, without what is secret or its episode's own."""
    told = _NOISE.sub("", end.errors if end.errors.strip() else end.output)
    lines = [line.rstrip()[:LONGEST_LINE] for line in told.splitlines() if line.strip()][-LINES:]
    text = "\n".join(lines)
    for own, word in _OWN:
        text = own.sub(word, text)
    try:
        text = _redactor().record_bytes(text.encode("utf-8", "replace"))[0].decode()
    except SecretError:
        text = "(what it said holds a secret)"
    return f": {text}" if text else ""


@functools.cache
def _redactor() -> Redactor:
    return Redactor(RedactionConfig())
