"""Two prompts judged by the gate on held-out tasks; and beside it how they do on the tasks that optimising has seen."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tracewheel import ConfigError, decide_gate, in_words
from tracewheel_prompts.players import Player
from tracewheel_prompts.prompt import Prompt

SEEN, HELD_OUT = ("train", "validation"), "held_out"
BEFORE, AFTER = "before", "after"
MODES = ("greedy", "sampled")


def check_gate(player: Player) -> None:
    """Check that the gate can be asked, before anything is paid for.

    Raises:
        ConfigError: it waits for an audit.
    """
    if player.config.gate.false_accepts == "audit":
        raise ConfigError(
            "gate.false_accepts is audit, and only a run audits its graders: give the number that `tracewheel audit` found, "
            "as in --set gate.false_accepts=0.02"
        )


def judge(player: Player, before: Prompt, after: Prompt, seen: Mapping[str, Sequence[str]], out: Path) -> dict[str, Any]:
    """Evaluate both prompts on training, validation and held-out tasks, and let the gate decide.

    Where optimising has found nothing better, held-out tasks are not played.

    Args:
        player: The policy.
        before: The prompt to beat.
        after: The one that was found.
        seen: Ids of the training and validation tasks that were played.
        out: The folder for the evaluations and `gate.json`.

    Returns:
        `splits`: by split the `rates` of both prompts by mode and the number of `tasks`; `gate`, the verdict as a record, None
        where there was nothing to judge.
    """
    if before == after:
        return {"splits": {}, "gate": None}
    splits = {}
    for split in (*SEEN, HELD_OUT):
        only = sorted(seen[split]) if split in SEEN else None
        rates = {
            name: player.evaluate(prompt, split, only, out / "evaluations" / split / name)
            for name, prompt in ((BEFORE, before), (AFTER, after))
        }
        splits[split] = {
            "tasks": rates[BEFORE]["tasks"],
            "rates": {name: {mode: found[mode] for mode in MODES} for name, found in rates.items()},
        }
    held = out / "evaluations" / HELD_OUT
    share = player.config.gate.false_accepts
    verdict = decide_gate(
        player.config.gate, held / AFTER, held / BEFORE, out, baseline_name="the prompt before", false_accepts=share
    )
    return {"splits": splits, "gate": verdict.to_record()}


def gain(rates: Mapping[str, Any]) -> float | None:
    """The gain of the prompt on a split: the mean of both modes, of those that were scored."""
    pairs = [(rates[BEFORE][mode]["rate"], rates[AFTER][mode]["rate"]) for mode in MODES]
    known = [after - before for before, after in pairs if before is not None and after is not None]
    return sum(known) / len(known) if known else None


def overfitting(splits: Mapping[str, Any], gate: Mapping[str, Any]) -> str:
    """What the splits say of overfitting, in a sentence; "" where nothing was judged."""
    seen, held = gain(splits["validation"]["rates"]), gain(splits[HELD_OUT]["rates"])
    if seen is None or held is None:
        return ""
    high = (gate.get("interval") or [0.0, 1.0])[1]
    shown = f"validation gained {100 * seen:+.1f} points, held-out {100 * held:+.1f}"
    if seen > high:
        return (
            f"{shown}: the prompt is fitted to the tasks that chose it, since its gain there is outside the held-out interval"
        )
    return f"{shown}: no overfitting is shown"


def page(report: Mapping[str, Any]) -> str:
    """The report as Markdown."""
    lines = [f"# Prompt {report['prompt']['digest']}", ""]
    lines += [f"Before: {report['before']['digest']}. Optimising ended by {report['stopped']}.", ""]
    cost = "not known" if report["reflection"]["cost"] is None else f"{report['reflection']['cost']:.4f}"
    lines += [
        f"It took {report['tokens']:,} sampled tokens, {report['reflection']['asked']} replies of "
        f"{report['reflection']['model']} (cost {cost}; {report['reflection']['unusable']} unusable), "
        f"{report['iterations']} proposals, {len(report['candidates'])} prompts on validation.",
        "",
    ]
    if report["splits"]:
        lines += [
            "| tasks | before, greedy | after, greedy | before, sampled | after, sampled | gain |",
            "|---|---:|---:|---:|---:|---:|",
        ]
        for name, found in report["splits"].items():
            rates = found["rates"]
            cells = [shown_rate(rates[which][mode]) for mode in MODES for which in (BEFORE, AFTER)]
            lines.append(f"| {found['tasks']} {name} | {' | '.join(cells)} | {points(gain(rates))} |")
        lines += ["", f"Gate: {' '.join(in_words(report['gate']))}", "", f"{report['overfitting']}.", ""]
    else:
        lines += ["No prompt did better on validation: held-out tasks were not played.", ""]
    lines += ["## Text", "", *_fenced(report["prompt"]["system"])]
    for name, text in report["prompt"]["tools"].items():
        lines += [f"Tool `{name}`:", "", *_fenced(text)]
    for text in report["prompt"]["demonstrations"]:
        lines += ["Demonstration:", "", *_fenced(text)]
    return "\n".join(lines)


def _fenced(text: str) -> list[str]:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return [fence, text, fence, ""]


def shown_rate(found: Mapping[str, Any]) -> str:
    """As in `52.1% (40.0 to 64.0)`."""
    if found["rate"] is None:
        return "–"
    low, high = found["interval"]
    return f"{found['rate']:.1%} ({100 * low:.1f} to {100 * high:.1f})"


def points(value: float | None) -> str:
    """A gain in points."""
    return "–" if value is None else f"{100 * value:+.1f}"
