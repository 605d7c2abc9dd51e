"""`tracewheel search`: preference pairs from tree search on the training tasks."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import Command, Writes
from tracewheel_search.commands.options import (
    add_budget,
    add_curated,
    add_profile,
    count,
    positive,
    profile_and_policy,
    training_tasks,
    update_on,
)

if TYPE_CHECKING:
    from tracewheel import Card


def options(parser: ArgumentParser) -> None:
    add_profile(parser)
    add_curated(parser)
    add_budget(parser)
    parser.add_argument("--tasks", type=count, default=32, metavar="N", help="how many training tasks (default: 32)")
    parser.add_argument("--width", type=count, default=4, metavar="K", help="turns sampled at a node (default: 4)")
    parser.add_argument("--exploration", type=positive, default=1.0, metavar="C", help="weight of UCB1's bound (default: 1)")
    parser.add_argument(
        "--margin", type=positive, default=0.25, help="least difference of the values of a pair (default: 0.25)"
    )
    parser.add_argument("--visits", type=count, default=2, help="least simulations of each side of a pair (default: 2)")
    parser.add_argument("--critic", metavar="DIR", help="output of train-process-model, which values turns instead of rollouts")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write; a search that was killed goes on there")


def run(options: Namespace) -> dict[str, Any]:
    """Search, and write the pairs.

    Raises:
        DataError: the folder holds another search, the budget is too small, most episodes have no score, or the world does not
            repeat its replies.
    """
    config, policy = profile_and_policy(options)
    from tracewheel import DataError, RolloutSections, digest_of, stage_shown
    from tracewheel_search.continuing import Player
    from tracewheel_search.pairs import PairSettings, write_pairs
    from tracewheel_search.process_model import critic_of
    from tracewheel_search.searching import Search, SearchSettings

    tasks = training_tasks(options)[: options.tasks]
    settings = SearchSettings(
        budget=options.budget,
        width=options.width,
        exploration=options.exploration,
        seed=config.seed,
        critic=digest_of(Path(options.critic)) if options.critic else "",
    )
    pairs = PairSettings(margin=options.margin, visits=options.visits)
    critic = critic_of(Path(options.critic), config, policy) if options.critic else None
    player = Player(RolloutSections.of(config), policy, len(tasks))
    out = Path(options.out)
    with stage_shown("search", None):
        search = Search(config, player, tasks, settings, out, critic)
        found = search.run()
        if not found["simulations"]:
            raise DataError(f"--budget {options.budget}: does not reach for one simulation of the {len(tasks)} tasks")
        made = write_pairs(out / "pairs", search.trees, search.trajectories, pairs)
    return {"out": options.out, **found, "pairs": made}


def card(options: Namespace, result: Mapping[str, Any]) -> Card:
    """What was sampled, and the pairs."""
    from tracewheel import Card

    pairs, value = result["pairs"], result["mean_value"]
    rows = [
        ("sampled tokens", f"{result['sampled_tokens']:,} of {result['budget']:,}"),
        ("simulations", f"{result['simulations']:,} on {result['tasks']} tasks"),
        ("without a score", f"{result['unscored']}"),
        ("tasks with a success", f"{result['solved']}"),
        ("mean value", "-" if value is None else f"{value:.2f}"),
        ("pairs", f"{pairs['pairs']} on {pairs['tasks_with_pairs']} tasks"),
    ]
    command = update_on(options, f"{options.out}/pairs/trajectories.parquet", f"{options.out}/pairs/scores.parquet")
    title = f"Tree search in {result['out']}"
    if not pairs["pairs"]:
        return Card(title, rows, look_at="no two turns at one place differ enough in value: nothing to learn", tone="warning")
    return Card(title, rows, next=[f"{command}  # with learner.kind: dpo"])


COMMAND = Command(
    "search",
    "search the turns of training tasks, and write preference pairs for DPO",
    options,
    run,
    card,
    Writes(("search.json",), ("waves/*/*", "pairs/*")),
)
