"""A loop whose learning rate is far too high goes back and repeats that when it is resumed; and a loop that finds its rate."""

import pytest

from flows.improve import improve
from flows.setup import resolve_config
from tasks.engine.drivers import DirectDriver
from tasks.engine.reading import begin_run
from tasks.stages.curate import curate_tasks
from tasks.stages.ingest import ingest_traces
from tasks.stages.warm_start import warm_start_policy
from tracewheel.config import SamplerSections
from tracewheel.core.files import read_json
from tracewheel.policy.adapters import policy_of
from tracewheel.report.doctor import GUARD_FILE
from tracewheel.sampling.curriculum import make_sampler

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def learn(profile, tmp_path_factory):
    """Runs the loop in this process; the same folder is used again, so that the first stages are made once."""
    folder = tmp_path_factory.mktemp("guard")

    def loop(*settings):
        run = begin_run(resolve_config(str(profile), list(settings), str(folder)), driver=DirectDriver())
        with run.hold():
            curated = curate_tasks(run, traces=ingest_traces(run, snapshot=run.snapshot))
            start = warm_start_policy(run, curated=curated, demonstrations="verified")
            sampler = make_sampler(SamplerSections.of(run.config), curated.path)
            return run, improve(run, curated, run.adapted("start", start), sampler)

    return loop


def test_a_collapse_goes_back_with_a_lower_rate_and_a_resumed_loop_does_the_same(learn):
    settings = ["learner.learning_rate=0.3", "training.iterations=3", "guard.attempts=1"]
    run, found = learn(*settings)
    first = found.guard[0]
    assert (first.action, first.to) == ("go_back", 0)
    assert read_json(run.record.path / GUARD_FILE) == [event.to_record() for event in found.guard]
    went_back = next(entry for entry in run.used if entry.stage == "go_back")
    assert policy_of(went_back.path, run.config.policy.base).version == first.iteration
    rates = [figures["learning_rate"] for figures in found.updates.values()]
    assert rates[first.iteration] == pytest.approx(0.09)
    keys = [entry.key for entry in run.used if entry.stage == "update"]
    assert len(set(keys)) == len(found.updates)
    assert found.best.iteration == 0
    again, resumed = learn(*settings)
    assert (resumed.guard, resumed.updates) == (found.guard, found.updates)
    assert all(entry.reused for entry in again.used)


def test_the_rate_is_found_on_the_first_iterations_rollouts(learn):
    run, found = learn("learner.learning_rate=auto", "training.iterations=1", "rollout.temperature=1.3", "rollout.group_size=8")
    (trials,) = found.rate_trials.values()
    assert found.updates[1]["learning_rate"] == trials["learning_rate"]
    assert 1e-5 <= trials["learning_rate"] <= 3e-3
    assert len([entry for entry in run.used if entry.stage == "rollout"]) == 1, "no rollouts of their own"
