"""Without a terminal, a stage that takes long prints a line now and then; a plan guesses no time."""

import re
import shutil
import time

import pytest
import torch
from safetensors.torch import save_file

from flows.commands.dry_run import make_plan, show_plan
from flows.console.progress import TerminalReporter
from tasks.engine.foresight import MEASURED_FILE
from tasks.engine.reading import begin_run
from tracewheel.config import load_config
from tracewheel.core.errors import ConfigError
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
    assert tokens == 50 * done and 0 < rate < 600 and left > 5  # a busy machine is slower, never faster
    assert not [line for line in lines if "quick:" in line or "merge:" in line]


def test_reports_without_a_listener_go_nowhere():
    report(1, 2, "steps")
    told = []
    with listening(told.append):
        report(1, 2, "steps", 3)
    report(2, 2, "steps")
    assert told == [Progress(1, 2, "steps", 3)]


def test_a_slow_rollout_tells_its_tokens_before_an_episode_ends(capsys):
    reporter = TerminalReporter(every=0.1)
    with reporter.shown(), listening(reporter.move):
        reporter.start("rollout 1 of 2")
        for tokens in range(8):
            report(0, 64, "episodes", tokens)
            time.sleep(0.1)
    told = [line for line in capsys.readouterr().err.splitlines() if "tokens" in line]
    pattern = r"rollout 1 of 2: 0 of 64 episodes, [1-7] tokens \(\d\.?\d* a second\), after \d s"
    assert told and all(re.fullmatch(pattern, line) for line in told[2:])


@pytest.fixture(scope="module")
def bigger(base, tmp_path_factory):
    """The tiny base with more bytes of weights than a tiny one has."""
    folder = tmp_path_factory.mktemp("bases") / "bigger"
    shutil.copytree(base, folder)
    save_file({"more": torch.zeros(1_500_000)}, folder / "more.safetensors")
    return folder


def test_what_an_unknown_model_takes_is_not_guessed(profile, base, bigger, tmp_path):
    tiny, other = (
        make_plan(
            begin_run(
                load_config(
                    str(profile), [f"policy.base={folder}", f"work_dir={tmp_path}/{folder}", f"resources.measure={measure}"]
                )
            )
        )
        for folder, measure in ((base, "auto"), (bigger, "never"))
    )
    assert tiny["estimate"] == "rough" and tiny["estimated_seconds"] > 0 and tiny["memory"] == []
    seconds = {stage["stage"]: stage["estimated_seconds"] for stage in other["stages"]}
    assert other["estimated_seconds"] is None and other["estimate"].startswith("unknown: no warm_start, rollout, update")
    assert seconds["update"] is None and seconds["curate"] > 0 and other["memory"] == []
    show_plan(other)


def test_what_a_model_takes_is_measured_once_and_what_cannot_fit_is_refused(profile, bigger, tmp_path, capsys):
    """The measured pass is that of the base; the limit is a setting."""

    def plan(*settings):
        return make_plan(begin_run(load_config(str(profile), [f"policy.base={bigger}", f"work_dir={tmp_path}/run", *settings])))

    found = plan()
    assert found["estimate"] == "from a measured pass of the base" and found["estimated_seconds"] > 0
    (need,) = found["memory"]
    assert need["device"] == "main memory" and need["peak_bytes"] == sum(need["parts"].values())
    assert 400 << 20 < need["peak_bytes"] < 4 << 30 and need["available_bytes"] > 0
    show_plan(found)
    assert "Memory: about" in capsys.readouterr().out
    kept = (tmp_path / "run" / MEASURED_FILE).stat().st_mtime_ns
    with pytest.raises(ConfigError, match=r"this run needs about .*0\.2 GiB are available \(resources\.memory_gib\): set "):
        plan("resources.memory_gib=0.2")
    assert plan()["memory"][0]["peak_bytes"] == need["peak_bytes"]
    assert (tmp_path / "run" / MEASURED_FILE).stat().st_mtime_ns == kept, "measured once"
