"""A run that loses nearly all of its first groups ends in a verdict, and says what was lost, what was shown, and what helps."""

import json
from html import unescape

import pytest

from tracewheel.curation.curated_folder import load_tasks
from tracewheel.environments.workspace.agent import solution

pytestmark = pytest.mark.slow
LOSING = ["rollout.temperature=2.0", "rollout.group_size=2", "training.iterations=2", "guard.enabled=false"]


@pytest.fixture(scope="module")
def ended(profile, command, tmp_path_factory):
    """Runs the profile by the command line: its folder, what `--json` says, and the text of its report."""

    def run(*settings):
        folder = tmp_path_factory.mktemp("lost")
        sets = [word for setting in (*LOSING, *settings) for word in ("--set", setting)]
        done = command("retrain", profile, "--run-dir", folder, "--json", *sets)
        assert done.returncode in (0, 3), done.stderr
        (report,) = folder.glob("*/report.html")
        return folder, json.loads(done.stdout), unescape(report.read_text())

    return run


@pytest.fixture(scope="module")
def alone(ended):
    return ended()


@pytest.fixture
def teacher(chat_server, alone):
    """An endpoint that solves the run's tasks; every third it ends at once."""
    (curated,) = (alone[0] / "store").glob("curate-*")
    tasks = load_tasks(curated, "train")
    steps = {task.prompt: solution(task)[-1:] if place % 3 == 0 else solution(task) for place, task in enumerate(tasks)}

    def answer(body, number):
        prompt = next(message["content"] for message in body["messages"] if message["role"] == "user")
        name, arguments = steps[prompt][sum(message["role"] == "assistant" for message in body["messages"])]
        function = {"name": name, "arguments": json.dumps(arguments)}
        return {"tool_calls": [{"id": f"call-{number}", "type": "function", "function": function}]}

    return chat_server(answer)


def test_without_a_teacher_it_says_what_was_lost_and_what_helps(alone):
    _, said, report = alone
    assert said["gate"]["verdict"] in ("promoted", "refused", "undecided"), said
    lost = said["lost_tasks"]["rl"]
    assert lost["lost"] > 0 and "What helps: imitate solutions" in lost["says"]
    assert lost["says"] in report


def test_with_a_teacher_that_errs_it_says_what_was_shown_and_won(ended, teacher):
    endpoint = f"teacher={{endpoint: '{teacher.url}', model: big, samples: 1, concurrency: 1}}"
    _, said, report = ended("learner.lost_tasks={rows: 8, at_start: 2, sources: [teacher]}", endpoint)
    lost = said["lost_tasks"]["rl"]
    assert lost["shown"].keys() == {"teacher"} and 0 < lost["shown"]["teacher"] < len(teacher.requests)
    assert said["gate"]["verdict"] in ("promoted", "refused", "undecided")
    assert lost["says"] in report
