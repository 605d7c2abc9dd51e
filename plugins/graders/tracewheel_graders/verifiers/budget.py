"""What an episode cost, against a budget."""

from __future__ import annotations

from pydantic import model_validator

from tracewheel import Count, Episode, Strict, Task, Verdict


class BudgetArgs(Strict):
    """The most of each that an episode should take; at least one."""

    turns: Count | None = None
    calls: Count | None = None
    tokens: Count | None = None

    @model_validator(mode="after")
    def _check_any(self) -> BudgetArgs:
        if self.turns is None and self.calls is None and self.tokens is None:
            raise ValueError("set a budget: turns, calls or tokens")
        return self


class BudgetVerifier:
    """What is left of the budget: 1 for an episode that costs nothing, 0 for one that uses a budget up.

    >>> from tracewheel import episode_from
    >>> task = Task("t1", "shop", "pay", 1, "Pay it.", {}, {}, "budget", "t1")
    >>> call = {"id": "c", "type": "function", "function": {"name": "pay", "arguments": '{"order": "K7"}'}}
    >>> episode = episode_from([{"role": "assistant", "content": None, "tool_calls": [call]}], 0, {})
    >>> verdict = BudgetVerifier(BudgetArgs(turns=4, calls=2)).verify_episode(task, episode)
    >>> verdict.total, verdict.parts
    (0.5, {'turns': 0.75, 'calls': 0.5})

    Each budget is a part; the total is the least of them. Turns, calls (malformed ones too) and generated tokens
    stand for latency and cost: an episode stores no times, and a reward by the clock could not be repeated. Doing
    nothing is cheap: use it as shaping.

    Raises:
        ValueError: the episode's tokens are not known, as those of most endpoints.
    """

    kind = "budget"
    Args = BudgetArgs

    def __init__(self, args: BudgetArgs) -> None:
        self._args = args

    def verify_episode(self, task: Task, episode: Episode) -> Verdict:
        used = {"turns": episode.turns, "calls": len(episode.calls), "tokens": episode.tokens}
        parts = {}
        for name, budget in self._args:
            if budget is None:
                continue
            count = used[name]
            if count is None:
                raise ValueError("the episode has no token ids to count: leave out args.tokens")
            parts[name] = max(0.0, 1.0 - count / budget)
        return Verdict(min(parts.values()), parts)
