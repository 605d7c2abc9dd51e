"""An episode whose histories parted: its branches, what each shares with the one it parted from, and what differs there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

from tracewheel.core.forks import ancestry, read_forks, rows
from tracewheel.core.types import canonical_json
from tracewheel.dashboard.transcript import Step, listed, text_of, transcript_of, turns_at

REASONS = {
    "": "the first conversation",
    "retry": "the same request once more",
    "parallel": "another message after the same turn",
    "sub_agent": "another agent: its own system prompt, tools or name",
    "side_request": "a request beside the main agent without tools, as for a title",
    "new_conversation": "a conversation that begins anew",
    "thinking_stripped": "a reply came back without its thinking",
    "edited": "a reply came back changed",
    "compaction": "turns were left out or summed up",
    "tools_changed": "other tools were offered",
    "template": "the chat template wrote earlier turns in another way",
}
# What a message of a branch is, beside those of the branch that it parted from.
SAME, NEW, SAID, EDITED, UNTHOUGHT = "same", "new", "said", "edited", "unthought"
THINKING = ("reasoning_content", "reasoning")


@dataclass(frozen=True)
class BranchStep:
    """A message of a branch: what it is beside the parent's, and the parent's that are left out before it, as role and text."""

    step: Step
    kind: str
    before: str = ""
    left_out: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Branch:
    """A branch.

    Attributes:
        parent: Number of the branch that it shares most messages with; None where it shares none.
        messages: How many it has; the first `shared` are the parent's too, and `shared_turns` of these were sampled there.
        turns: Numbers of the turns that were sampled in it.
        credits: Whom the episode's reward is for, turn by turn; None is every branch's, "" is nobody.
        steps: Its messages; empty unless they were asked for.
    """

    number: int
    reason: str
    agent: str
    parent: int | None
    messages: int
    shared: int
    shared_turns: int
    turns: Sequence[int]
    credits: Sequence[str | None]
    steps: Sequence[BranchStep]

    @property
    def words(self) -> str:
        """The reason in words."""
        return REASONS.get(self.reason, self.reason.replace("_", " "))

    @property
    def credit(self) -> str:
        """Whom the reward of its turns is for, in words."""
        of = ["yes" if each is None else f"as {each}'s" if each else "no" for each in self.credits]
        return ", ".join(dict.fromkeys(of)) or "–"


@dataclass(frozen=True)
class Row:
    """A row of the tree of tokens: what was read and sampled from the first token to a last turn.

    Attributes:
        branches: Numbers of the branches whose turns it holds.
        shared: How many of its tokens an earlier row (`with_row`) begins with too.
        sampled: Tokens that the policy sampled; `own` are those that no earlier row holds.
    """

    number: int
    turns: Sequence[int]
    branches: Sequence[int]
    tokens: int
    sampled: int
    own: int
    shared: int
    with_row: int | None


def branches_of(found: Mapping[str, Any], tools: Sequence[Mapping[str, Any]], first: int = 0, shown: int = 0) -> list[Branch]:
    """The branches of a trajectory; none where its history only grew.

    Args:
        found: As `one_trajectory` has it.
        tools: What the environment offers; empty where that is not known.
        first: Number of the first branch that has `steps`.
        shown: How many have.
    """
    stored = [each for each in listed(found.get("branches")) if isinstance(each, Mapping)]
    stored = [
        {**each, "messages": [one for one in listed(each.get("messages")) if isinstance(one, Mapping)]} for each in stored
    ]
    every = [each["messages"] for each in stored]
    numbers: dict[str, int] = {}
    keys = [[numbers.setdefault(_key(message), len(numbers)) for message in messages] for messages in every]
    turns = listed(found.get("turns"))
    made: list[Branch] = []
    for number, branch in enumerate(stored):
        own = turns_at(branch, len(turns))
        parent, shared = _parent(keys, number)
        steps: list[BranchStep] = []
        if first <= number < first + shown:
            plain = transcript_of({**found, "branches": None, **_alone(found, branch, own)}, tools)
            steps = _marked([_numbered(step, own) for step in plain], [] if parent is None else every[parent], every[number])
        made.append(
            Branch(
                number,
                str(branch.get("reason") or ""),
                str(branch.get("agent") or ""),
                parent,
                len(every[number]),
                shared,
                0 if parent is None else sum(at < shared for at in _places(every[parent], len(made[parent].turns))),
                own,
                [turns[at].get("credit") for at in own],
                steps,
            )
        )
    return made


def rows_of(found: Mapping[str, Any]) -> list[Row]:
    """The rows of a trajectory's tokens; none where there is but one."""
    mask, forks = found["action_mask"], read_forks(found.get("forks"))
    paths = rows(forks, len(mask))
    if len(paths) < 2:
        return []
    turns = listed(found.get("turns"))
    branches = [turns_at(each, len(turns)) for each in listed(found.get("branches")) if isinstance(each, Mapping)]
    pieces = [ancestry(forks, len(mask), path[-1]) for path in paths]
    seen: set[int] = set()
    made: list[Row] = []
    for number, path in enumerate(paths):
        there = set(path)
        held = [at for at, turn in enumerate(turns) if turn["end"] - 1 in there]
        shared, other = max(((_shared_tokens(pieces[number], pieces[at]), -at) for at in range(number)), default=(0, 0))
        made.append(
            Row(
                number,
                held,
                [at for at, own in enumerate(branches) if set(own) & set(held)],
                len(path),
                sum(int(mask[at]) for at in path),
                sum(int(mask[at]) for at in there - seen),
                shared,
                -other if shared else None,
            )
        )
        seen |= there
    return made


def _numbered(step: Step, own: Sequence[int]) -> Step:
    return step if step.turn is None else replace(step, turn=own[step.turn])


def _places(messages: Sequence[Any], turns: int) -> list[int]:
    """Where in a branch's messages its own turns are: the last assistant messages."""
    said = [at for at, each in enumerate(messages) if isinstance(each, Mapping) and each.get("role") == "assistant"]
    return said[max(0, len(said) - turns) :]


def _alone(found: Mapping[str, Any], branch: Mapping[str, Any], own: Sequence[int]) -> dict[str, Any]:
    """The fields of a trajectory that would be the branch alone."""
    turns, rewards = found["turns"], found.get("turn_rewards")
    kept = None if rewards is None else [rewards[at] for at in own if at < len(rewards)]
    return {"messages": branch.get("messages"), "turns": [turns[at] for at in own], "turn_rewards": kept}


def _parent(keys: Sequence[Sequence[int]], number: int) -> tuple[int | None, int]:
    """The earlier branch with which a branch begins alike, the latest of equals, and how many messages they share."""
    if not number:
        return None, 0
    shared, parent = max((_shared(keys[number], keys[at]), at) for at in range(number))
    return (parent, shared) if shared else (None, 0)


def _marked(steps: Sequence[Step], theirs: Sequence[Any], messages: Sequence[Any]) -> list[BranchStep]:
    """The steps of a branch with `messages`, beside the parent's messages. From its first own turn on, all is its own."""
    mine = messages[: next((step.number for step in steps if step.turn is not None), len(messages))]
    kinds: dict[int, tuple[str, str]] = {}
    left_out: dict[int, list[tuple[str, str]]] = {}
    matcher = SequenceMatcher(None, [_key(each) for each in theirs], [_key(each) for each in mine], autojunk=False)
    last = max((block.a + block.size for block in matcher.get_matching_blocks() if block.size), default=0)
    for kind, from_, to, begin, end in matcher.get_opcodes():
        gone = [theirs[at] for at in range(from_, to)] if kind in ("delete", "replace") else []
        for at in range(begin, end):
            if kind == "equal":
                kinds[at] = SAME, ""
                continue
            pair = next((each for each in gone if _is_version(each, mine[at])), None)
            if pair is not None:
                gone = gone[gone.index(pair) + 1 :]
                kinds[at] = (UNTHOUGHT if _unthought(pair) == _unthought(mine[at]) else EDITED), _said(pair)
        if gone and (from_ < last or end < len(mine)):
            left_out[begin] = [(str(each.get("role") or ""), _said(each)) for each in gone if isinstance(each, Mapping)]
    found = []
    for step in steps:
        what, before = (SAID, "") if step.number >= len(mine) else kinds.get(step.number, (NEW, ""))
        found.append(BranchStep(step, what, before, left_out.get(step.number, ())))
    return found


def _is_version(one: Any, other: Any) -> bool:
    return isinstance(one, Mapping) and isinstance(other, Mapping) and one.get("role") == other.get("role") == "assistant"


def _unthought(message: Mapping[str, Any]) -> str:
    return canonical_json({name: value for name, value in message.items() if name not in THINKING and value})


def _said(message: Mapping[str, Any]) -> str:
    """A message in one text: thinking, content, calls."""
    thinking = [str(message[name]) for name in THINKING if message.get(name)]
    calls = [each.get("function") or {} for each in message.get("tool_calls") or () if isinstance(each, Mapping)]
    called = [f"{call.get('name') or ''} {call.get('arguments') or ''}" for call in calls]
    return "\n".join([*thinking, text_of(message.get("content")), *called]).strip()


def _key(message: Any) -> str:
    return canonical_json(message)


def _shared(one: Sequence[Any], other: Sequence[Any]) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _shared_tokens(one: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]) -> int:
    found = 0
    for (start, stop), (begin, end) in zip(one, other, strict=False):
        if start != begin:
            break
        found += min(stop, end) - start
        if stop != end:
            break
    return found
