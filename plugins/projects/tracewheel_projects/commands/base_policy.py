"""`tracewheel stage base-policy`: the tiny base of a world, trained from random weights."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tracewheel import Command, Writes, produce_whole


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="YAML file of the base's settings")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="a.b=c", help="override one setting")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write; replaced if it exists")


def run(options: argparse.Namespace) -> dict[str, Any]:
    from tracewheel_projects.demo.base_policy import train_base_policy
    from tracewheel_projects.demo.config import load_base_config

    config = load_base_config(options.config, options.overrides)
    return {"out": options.out, **produce_whole(Path(options.out), lambda out: train_base_policy(config, out))}


COMMAND = Command(
    "stage base-policy",
    "train the tiny base policy from random weights",
    add_options,
    run,
    writes=Writes(("base.json", "config.json"), ("*.safetensors", "*.json", "chat_template.jinja", "replay.parquet")),
)
