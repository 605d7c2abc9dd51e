"""The workspace verifier against a case table and against the scripted solution."""

import json
import random
from pathlib import Path

import pytest

from tracewheel.core.errors import ConfigError
from tracewheel.core.kind_table import give
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.environment import WorkspaceEnvironment
from tracewheel.environments.workspace.tasks import FAMILIES, make_task, workspace_task
from tracewheel.scoring.verifiers import make_verifier

TABLE = json.loads(Path(__file__).with_name("workspace_cases.json").read_text())


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: case["name"])
def test_case_table(case):
    task = workspace_task(**TABLE["task"])
    files = dict(TABLE["solved"])
    for path, text in case["change"].items():
        if text is None:
            files.pop(path)
        else:
            files[path] = text["repeat"] * text["times"] if isinstance(text, dict) else text
    total, breakdown = make_verifier("workspace").verify(task, {"folders": ["", "/archive", "/inbox"], "files": files})
    assert breakdown == {"files_moved": case["moved"], "manifest": case["manifest"], "untouched": case["untouched"]}
    assert total == min(breakdown.values())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tier", [1, 3, 6])
def test_scripted_solution_scores_one_and_each_shorter_one_zero(family, tier):
    task = make_task(family, tier, random.Random(tier))
    verifier = make_verifier("workspace")
    calls = solution(task)
    for done in range(len(calls) + 1):
        environment = WorkspaceEnvironment()
        environment.reset(task)
        for name, args in calls[:done]:
            environment.step(name, args)
        total, _ = verifier.verify(task, environment.snapshot())
        assert total == float(done >= len(calls) - 1), "the manifest is the last call that matters"


def test_new_folder_counts_as_touched():
    task = workspace_task(**TABLE["task"])
    state = {"folders": ["", "/archive", "/inbox", "/tmp"], "files": TABLE["solved"]}
    assert make_verifier("workspace").verify(task, state)[1]["untouched"] == 0.0


def test_an_unknown_verifier_is_a_config_error():
    with pytest.raises(ConfigError, match="no verifier is called 'nose'"):
        make_verifier("nose")
    give("no_such_module:Verifier")
    with pytest.raises(ConfigError, match="cannot be imported"):
        make_verifier("no_such_module:Verifier")
