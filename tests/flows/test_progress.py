"""Without a terminal, a stage that takes long prints a line now and then; a plan guesses no time."""

import re
import shutil
import time

import torch
from safetensors.torch import save_file

from flows.plan import make_plan, show_plan
from flows.progress import TerminalReporter
from tasks.run import Run
from tracewheel.config import load_config
from tracewheel.core.progress import Progress, listening, report


def test_a_long_stage_says_how_far_it_is(capsys):
    reporter = TerminalReporter(every=0.2)
    with reporter.shown(), listening(reporter.move):
        reporter.start("quick")
        reporter.end("quick", "Completed", 0.0)
        reporter.start("rollout 1 of 2")
        time.sleep(0.6)
        for done in range(1, 10):
            report(done, 100, "episodes", 50 * done)
            time.sleep(0.1)
        reporter.end("rollout 1 of 2", "Completed", 1.5)
        reporter.start("merge")
    lines = capsys.readouterr().err.splitlines()
    silent = [line for line in lines if re.fullmatch(r"rollout 1 of 2: running for \d+ s", line)]
    told = [line for line in lines if line.startswith("rollout 1 of 2:") and "of 100 episodes" in line]
    assert silent and len(told) >= 2
    pattern = r"rollout 1 of 2: (\d) of 100 episodes, (\d+) tokens \((\d+) a second\), after \d s, about (\d+) s left"
    done, tokens, rate, left = map(int, re.fullmatch(pattern, told[-1]).groups())
    assert tokens == 50 * done and 100 < rate < 600 and 5 < left < 60
    assert not [line for line in lines if "quick:" in line or "merge:" in line]


def test_reports_without_a_listener_go_nowhere():
    report(1, 2, "steps")
    told = []
    with listening(told.append):
        report(1, 2, "steps", 3)
    report(2, 2, "steps")
    assert told == [Progress(1, 2, "steps", 3)]


def test_the_time_of_an_unknown_model_is_not_guessed(profile, base, tmp_path):
    bigger = tmp_path / "bigger"
    shutil.copytree(base, bigger)
    save_file({"more": torch.zeros(1_500_000)}, bigger / "more.safetensors")
    tiny, other = (
        make_plan(Run.of(load_config(str(profile), [f"policy.base={folder}", f"work_dir={tmp_path}/{name}"])))
        for name, folder in (("tiny", base), ("bigger", bigger))
    )
    assert tiny["estimate"] == "rough" and tiny["estimated_seconds"] > 0
    seconds = {stage["stage"]: stage["estimated_seconds"] for stage in other["stages"]}
    assert other["estimated_seconds"] is None and other["estimate"].startswith("unknown: no warm_start, rollout, update")
    assert seconds["update"] is None and seconds["curate"] > 0
    show_plan(other)
