"""Options that commands of this wheel have in common."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracewheel import RetrainConfig


def add_profile(parser: ArgumentParser) -> None:
    """The profile, and what may be changed of it."""
    parser.add_argument("config", metavar="CONFIG", help="YAML profile")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="a.b=c", help="override one setting")
    parser.add_argument("--run-dir", metavar="DIR", help="where everything goes, instead of the profile's work_dir")


def profile_of(options: Namespace) -> RetrainConfig:
    """The profile with its changes, which has to name a base; the libraries are quiet from now on.

    Raises:
        ConfigError: it is invalid.
    """
    from tracewheel import prepare_environment, resolve_config

    config = resolve_config(options.config, options.overrides, options.run_dir)
    config.require("policy.base")
    prepare_environment(None, debug=options.debug)
    return config
