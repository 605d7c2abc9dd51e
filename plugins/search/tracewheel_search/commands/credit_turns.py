"""`tracewheel credit-turns`: scores whose turns are rewarded with the change of a process model's values."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Command, Writes, profile_words
from tracewheel_search.commands.options import add_episodes, add_profile, episodes, profile_and_policy

if TYPE_CHECKING:
    from tracewheel import Card


def options(parser: ArgumentParser) -> None:
    add_profile(parser)
    add_episodes(parser)
    parser.add_argument("--model", required=True, metavar="DIR", help="output of train-process-model, of this policy")
    parser.add_argument("--kind", choices=("baseline", "shaping"), default="baseline", help="see the wheel's README")
    parser.add_argument("--weight", type=float, default=0.5, help="of shaping, at most 0.5 (default: 0.5)")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write")


def run(options: Namespace) -> dict[str, Any]:
    """Write `scores.parquet` with `turn_rewards`.

    Raises:
        DataError: files do not belong together, or the model is of another base.
        ConfigError: shaping would weigh more than the outcome.
    """
    config, policy = profile_and_policy(options)
    from tracewheel import Score, produce_whole, stage_shown, write_records
    from tracewheel_search.process_model import HiddenStates, ProcessModel
    from tracewheel_search.turn_credit import credited

    trajectories, scores = episodes(options)
    model, hidden = ProcessModel.load(Path(options.model)), HiddenStates(config, policy)
    with stage_shown("credit-turns", None):
        values = {each.id: dict(enumerate(model.values(hidden.of(each)).tolist())) for each in trajectories if each.turns}
        turns = {each.id: len(each.turns) for each in trajectories}
        found = credited(scores, values, turns, options.kind, options.weight)
        produce_whole(Path(options.out), lambda out: write_records(out / "scores.parquet", found, Score))
    return {"out": options.out, "scores": len(found), "credited": sum(item.turn_rewards is not None for item in found)}


def card(options: Namespace, result: Mapping[str, Any]) -> Card:
    """How many scores have rewards of turns now."""
    from tracewheel import Card

    rows = [("scores", f"{result['scores']}"), ("with rewards of turns", f"{result['credited']}")]
    discount = " --set learner.credit.discount=0" if options.kind == "baseline" else ""
    return Card(
        f"Credit of turns in {result['out']}",
        rows,
        next=[
            f"tracewheel stage update {profile_words(options)} --trajectories {options.trajectories} --scores "
            f"{options.out}/scores.parquet --set learner.credit.kind=turn{discount} --state DIR --reference DIR --out DIR"
        ],
    )


COMMAND = Command(
    "credit-turns",
    "reward the turns of scored episodes with the change of a process model's values",
    options,
    run,
    card,
    Writes(("scores.parquet",), ()),
)
