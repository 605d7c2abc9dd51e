"""`tracewheel stage base-policy`: the demo's tiny base, trained from random weights."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from flows.commands.command import Command, Writes
from flows.console.arguments import out_option, set_option


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="YAML file of the base's settings")
    set_option(parser)
    out_option(parser)


def run(options: argparse.Namespace) -> dict[str, Any]:
    from tracewheel.core.store import produce_whole
    from tracewheel.demo.base_policy import train_base_policy
    from tracewheel.demo.config import load_base_config

    config = load_base_config(options.config, options.overrides)
    return {"out": options.out, **produce_whole(Path(options.out), lambda out: train_base_policy(config, out))}


COMMAND = Command(
    "stage base-policy",
    "train the tiny base policy from random weights",
    add_options,
    run,
    writes=Writes(("base.json", "config.json"), ("*.safetensors", "*.json", "chat_template.jinja", "replay.parquet")),
)
