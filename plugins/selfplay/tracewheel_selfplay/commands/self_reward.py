"""`tracewheel self-reward`: the majority of a group is its reward, guards stop the loop, and the gate judges the policy."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Command, DataError, Writes, profile_of, profile_options, profile_words

if TYPE_CHECKING:
    from tracewheel import Card

RESULT_FILE = "result.json"


def options(parser: ArgumentParser) -> None:
    profile_options(parser)
    parser.add_argument("--curated", required=True, metavar="DIR", help="output of curate")
    parser.add_argument("--state", required=True, metavar="DIR", help="the policy to begin with: output of a warm start")
    parser.add_argument(
        "--labels", type=int, default=8, metavar="N", help="training tasks whose true reward the guards see (8)"
    )
    parser.add_argument(
        "--of", choices=("state", "answer"), default="state", help="what has to be alike: the final state, or the answer"
    )
    parser.add_argument("--unguarded", action="store_true", help="no guards: the control that shows what they stop")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write; replaced if it exists")


def run(options: Namespace) -> dict[str, Any]:
    """Train on the majority, and let the gate judge by the profile's own rubric.

    Raises:
        ConfigError: groups are too small for a majority, or the gate waits for an audit.
        DataError: a folder is missing, or there are no labels.
    """
    config = profile_of(options, "policy.base")
    from tracewheel import curated_folder, folder_of, resolve_config, write_json
    from tracewheel_selfplay.guards import Limits, check_groups
    from tracewheel_selfplay.rounds import begin, check_start, judge
    from tracewheel_selfplay.self_reward import self_reward

    if options.labels < 1:
        raise DataError("--labels: the guards need at least one task with a true reward")
    rubric = json.dumps([{"kind": "majority", "args": {"of": options.of}}])
    reward = resolve_config(options.config, [*options.overrides, f"rubric.verifiers={rubric}"], options.run_dir)
    curated, start, out = curated_folder(options), folder_of(options.state, "--state"), Path(options.out)
    limits = None if options.unguarded else Limits()
    check_groups(config.rollout.group_size)
    check_start(config, out, curated, start)
    begin(config, out)
    found = self_reward(config, reward, curated, start, out / "rounds", labels=options.labels, limits=limits)
    verdict = judge(config, {"start": start, "self-reward": Path(found["state"])}, curated, out / "held_out")
    result = {"out": options.out, **found, **verdict}
    write_json(out / RESULT_FILE, result)
    return result


def card(options: Namespace, result: Mapping[str, Any]) -> Card:
    from tracewheel import Card, Grid

    def shown(value: float | None) -> str:
        return "–" if value is None else f"{value:.1%}"

    rows = [
        (
            str(number),
            shown(each["share"]),
            shown(each["agree"] / each["labelled"] if each["labelled"] else None),
            shown(each["true_success"]),
            shown(each["flips"]),
            f"{each['length']:.0f}",
        )
        for number, each in enumerate(result["rounds"], 1)
    ]
    headings = ("round", "majority", "own reward is true", "true success", "majorities changed", "tokens")
    figures = [(name, " and ".join(map(shown, rates))) for name, rates in result["rates"].items()]
    figures.append(("stopped", result["stopped"] or "no"))
    tone = "good" if result["verdict"] == "promoted" else "warning"
    again = [
        f"tracewheel evaluate {profile_words(options)} --curated {options.curated} --state {result['state']} --out evaluation"
    ]
    says = f"a guard stopped it in round {len(rows)}: the policy before is kept" if result["stopped"] else result["says"]
    return Card(f"Self-reward: {result['verdict']}", figures, [Grid(headings, rows)], says, tone, again)


COMMAND = Command(
    "self-reward",
    "where no verifier exists, the majority of a group is its reward; guards stop what collapses",
    options,
    run,
    card,
    Writes(("begun.json",), (RESULT_FILE, "rounds/*", "held_out/*")),
)
