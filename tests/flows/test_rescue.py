"""A loop learns from verified solutions of the tasks it loses: those of logs, its own, and a teacher's behind an endpoint."""

import json

import pytest

from flows.improve import improve
from flows.setup import resolve_config
from tasks.engine.drivers import DirectDriver
from tasks.engine.reading import begin_run
from tasks.engine.run import Silent
from tasks.stages.curate import curate_tasks
from tasks.stages.ingest import ingest_traces
from tasks.stages.warm_start import warm_start_policy
from tracewheel.config import SamplerSections
from tracewheel.core.files import read_json, read_table
from tracewheel.curation.curated_folder import load_tasks
from tracewheel.environments.workspace.agent import solution
from tracewheel.learner.solutions import SOLUTIONS_FILE
from tracewheel.sampling.curriculum import make_sampler
from tracewheel.sampling.lost_tasks import LOST_FILE

pytestmark = pytest.mark.slow

# A policy that has only heard of the format loses most of its groups.
LOSING = ["training.iterations=2", "rollout.temperature=2.0", "rollout.group_size=2", "guard.enabled=false"]


@pytest.fixture(scope="module")
def learn(profile, tmp_path_factory):
    """Runs the loop in this process; the same folder is used again, so that the first stages are made once."""
    folder = tmp_path_factory.mktemp("rescue")

    def loop(*settings, reporter=None):
        config = resolve_config(str(profile), [*LOSING, *settings], str(folder))
        run = begin_run(config, reporter, driver=DirectDriver())
        with run.hold():
            curated = curate_tasks(run, traces=ingest_traces(run, snapshot=run.snapshot))
            start = warm_start_policy(run, curated=curated, demonstrations="none")
            sampler = make_sampler(SamplerSections.of(run.config), curated.path)
            return run, curated, improve(run, curated, run.adapted("start", start), sampler)

    return loop


@pytest.fixture
def teacher(chat_server, learn):
    """An endpoint that solves the tasks; it fails every third episode."""
    _, curated, _ = learn("training.iterations=1")
    by_prompt = {task.prompt: solution(task) for task in load_tasks(curated.path, "train")}

    def answer(body, number):
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        prompt = next(message["content"] for message in body["messages"] if message["role"] == "user")
        steps = by_prompt[prompt]
        if list(by_prompt).index(prompt) % 3 == 0:
            steps = steps[-1:]
        name, arguments = steps[turn]
        function = {"name": name, "arguments": json.dumps(arguments)}
        return {"tool_calls": [{"id": f"call-{number}", "type": "function", "function": function}]}

    return chat_server(answer)


class Listening(Silent):
    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


def test_a_loop_without_rescue_says_that_its_groups_are_lost(learn):
    reporter = Listening()
    _, _, found = learn("training.iterations=1", reporter=reporter)
    assert found.updates[1]["lost_groups"] > 0.5 and "What helps: imitate solutions" in found.rescue["rl"]["says"]
    (said,) = [text for text in reporter.said if "lost whole" in text]
    assert "learner.lost_tasks" in said and "teacher" in said


def test_lost_tasks_are_rescued_from_logs_and_the_teacher_and_a_resumed_loop_does_the_same(learn, teacher):
    settings = [
        "learner.lost_tasks={rows: 8, at_start: 2}",
        f"teacher={{endpoint: '{teacher.url}', model: big, samples: 1, concurrency: 1}}",
    ]
    run, curated, found = learn(*settings)
    first = found.updates[1]
    assert first["lost_groups"] > 0.5 and first["rescued_tasks"] > 0
    assert "policy_loss" not in first and first["solutions_loss"] > 0.0, "imitation comes first"
    assert "policy_loss" in found.updates[2] or found.updates[2]["steps"] > 0
    shown = read_json(run.record.path / LOST_FILE)
    assert {one["source"] for one in shown.values() if "source" in one} <= {"logs", "own", "teacher"}
    training = {task.id for task in load_tasks(curated.path, "train")}
    assert shown.keys() <= training
    taught = [entry for entry in run.used if entry.stage == "teach"]
    asked = len(teacher.requests)
    for entry in taught:
        assert set(read_table(entry.path / "episodes.parquet")["task_id"]) <= training
    (update,) = [entry for entry in run.used if entry.stage == "update" and entry.result is not None][:1]
    assert update.result["solutions_loss"] == first["solutions_loss"]
    solved = [entry for entry in run.used if entry.stage == "solutions"]
    assert read_table(solved[-1].path / SOLUTIONS_FILE)["source"].isin(["logs", "own", "teacher"]).all()
    again, _, resumed = learn(*settings)
    assert (resumed.updates, resumed.rescue) == (found.updates, found.rescue)
    assert all(entry.reused for entry in again.used) and len(teacher.requests) == asked, "nothing is paid twice"


def test_a_teacher_that_does_not_answer_ends_no_run(learn, chat_server):
    away = chat_server(lambda body, number: (503, {}, {"error": {"message": "away"}}))
    run, _, found = learn(
        "training.iterations=1",
        "learner.lost_tasks={rows: 8, sources: [teacher]}",
        f"teacher={{endpoint: '{away.url}', model: big, samples: 1, concurrency: 1, retries: 0}}",
    )
    assert found.updates[1].get("rescued_tasks", 0.0) == 0.0
    (taught,) = [entry for entry in run.used if entry.stage == "teach"]
    assert "away" in taught.result["stopped"] or taught.result["stopped"]
