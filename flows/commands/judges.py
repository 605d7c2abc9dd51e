"""`tracewheel calibrate-judge`: a grader that is a model, measured before it is used."""

from __future__ import annotations

import argparse
from typing import Any


def add_judge_commands(commands: Any, exit_codes: str) -> None:
    """Add the commands to the command line."""
    summary = "measure a profile's judge by labelled episodes: agreement, kappa, false accepts and rejects, bias by length"
    parser = commands.add_parser("calibrate-judge", help=summary, description=f"{summary}.", epilog=exit_codes)
    parser.set_defaults(command="flows.commands.judges:calibrate_judge")
    parser.add_argument("config", metavar="CONFIG", help="the profile")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="a.b=c", help="override one setting")
    parser.add_argument("--run-dir", metavar="DIR", help="where everything goes, instead of the profile's work_dir")
    parser.add_argument("labelled", metavar="FILE", help="JSON lines: messages, label (pass or fail), and task")
    parser.add_argument("--held-back", action="store_true", help="the judge of evaluation.rubric, not that of rubric")
    parser.add_argument("--pass-mark", type=float, default=1.0, metavar="X", help="the total that is a pass (default: 1)")
    parser.add_argument("--out", metavar="FILE", help="write the figures as JSON")
    _common(parser)


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--debug", action="store_true", help="show stack traces and the libraries' logs")


def calibrate_judge(options: argparse.Namespace) -> dict[str, Any]:
    """`tracewheel calibrate-judge`.

    Raises:
        ConfigError: the rubric has no judge.
        DataError: a line of the file is no labelled episode.
    """
    from pathlib import Path

    from flows.setup import prepare_environment, resolve_config
    from tracewheel.core.errors import ConfigError
    from tracewheel.core.files import write_json
    from tracewheel.scoring.verifiers import EpisodeVerifier, make_verifier
    from tracewheel.scoring.verifiers.judges.calibration import calibration, judge_labelled, read_labelled

    config = resolve_config(options.config, options.overrides, options.run_dir)
    prepare_environment(None, debug=options.debug)
    rubric = config.evaluation.rubric if options.held_back else config.rubric
    place = "evaluation.rubric" if options.held_back else "rubric"
    judges = [term.spec for term in rubric.verifiers if term.kind == "judge"] if rubric else []
    if not judges:
        raise ConfigError(f"{place}: has no verifier of kind 'judge'")
    verifier = make_verifier(judges[0])
    assert isinstance(verifier, EpisodeVerifier)
    result = calibration(judge_labelled(verifier, read_labelled(Path(options.labelled)), options.pass_mark))
    if options.out:
        write_json(Path(options.out), result)
    return result
