"""`tracewheel stage params`: a profile as DVC's params file."""

from __future__ import annotations

import argparse
from typing import Any

from flows.commands.command import Command
from flows.console.arguments import profile_options

HEADING = (
    "# The profile of `dvc repro`, written by `tracewheel stage params {profile}`. Sections that it leaves out have defaults.\n"
)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Print a profile with every section and key that `dvc.yaml` reads: DVC needs them in the file.

    Values are as the profile writes them. Filled in are only keys that `dvc.yaml` names, so that choosing another
    `learner.kind` still brings that algorithm's defaults.
    """
    import yaml

    from flows.setup import resolve_config
    from tasks.engine.keys import all_sections
    from tracewheel.config.loading import read_values

    config = resolve_config(options.config, options.overrides)
    config.require("policy.base", "environment.kind", "ingest.paths")
    values = read_values(options.config, options.overrides)
    defaults = config.model_dump(mode="json")
    values = {"name": config.name, **values}
    for section in all_sections():
        values.setdefault(section, {} if isinstance(defaults[section], dict) else defaults[section])
    values["warm_start"].setdefault("demonstrations", config.warm_start.demonstrations)
    heading = HEADING.format(profile=options.config)
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120)
    return {**values, "show": heading + text}


COMMAND = Command("stage params", "print a profile as DVC's params file, for params.yaml", profile_options, run)
