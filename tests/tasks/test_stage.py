"""A stage as a Prefect task: its key, its reuse, its retries."""

import pytest

from tasks.run import Policy
from tasks.stage import NotStored, stage_task
from tracewheel.adapters import PolicyRef
from tracewheel.errors import DataError, InfrastructureError
from tracewheel.store import Entry


@pytest.fixture
def counted():
    """A stage that counts how often it ran and fails as often as it is told to."""
    calls = []
    failures = []

    @stage_task("count", code="tracewheel.types", sections=("seed", "gate"))
    def count_up(run, out, *, number, policy=None):
        """Write a number."""
        calls.append(number)
        if failures:
            raise failures.pop()
        (out / "number.txt").write_text(str(number))
        return {"number": number}

    count_up.calls, count_up.failures = calls, failures
    return count_up


def entry(tmp_path, digest):
    return Entry("any", "key", tmp_path, digest, 0.0, {})


def test_the_body_works_without_prefect(counted, make_run):
    run = make_run()
    key = counted.key(run, {"number": 3})
    made = run.store.make("count", key, lambda out: counted._function(run, out, number=3))
    assert (made.path / "number.txt").read_text() == "3"
    assert counted.find(run, number=3) == run.store.find("count", key)


def test_the_key_follows_what_the_result_is_made_from(counted, make_run, tmp_path):
    run = make_run()
    key = counted.key(run, {"number": 1, "policy": run.base()})
    assert counted.key(make_run(learner={"kl": 0.5}, name="other"), {"number": 1, "policy": run.base()}) == key
    others = [
        counted.key(run, {"number": 2, "policy": run.base()}),
        counted.key(make_run(seed=1), {"number": 1, "policy": run.base()}),
        counted.key(make_run(gate={"confidence": 0.9}), {"number": 1, "policy": run.base()}),
        counted.key(run, {"number": 1, "policy": run.adapted("rl", entry(tmp_path, "a"))}),
        counted.key(run, {"number": 1, "policy": run.adapted("rl", entry(tmp_path, "b"))}),
        counted.key(run, {"number": 1, "policy": run.adapted("rl", entry(tmp_path, "b"), version=2)}),
        counted.key(run, {"number": 1, "policy": [entry(tmp_path, "b")]}),
    ]
    assert len({key, *others}) == 8
    renamed = counted.key(run, {"number": 1, "policy": run.adapted("other name", entry(tmp_path / "elsewhere", "a"))})
    assert renamed == others[3]


def test_a_policy_names_the_folder_of_its_adapter_or_whole_model(tmp_path):
    assert Policy("base", "data/base").ref().adapter is None
    rl = Policy("rl", "data/base", entry(tmp_path, "a"), 4)
    assert rl.ref() == PolicyRef("data/base", str(tmp_path / "adapter"), 4)
    (tmp_path / "model").mkdir()
    assert rl.ref() == PolicyRef(str(tmp_path / "model"), None, 4)


def test_a_plan_stops_at_what_is_not_stored(counted, make_run):
    run = make_run()
    planning = type(run)(run.config, run.store, run.record, planning=True)
    with pytest.raises(NotStored, match="count"):
        counted(planning, number=1)
    assert counted.calls == []


def test_a_plan_begins_nothing_ahead(counted, make_run):
    run = make_run()
    planning = type(run)(run.config, run.store, run.record, planning=True)
    pending = counted.ahead(planning, number=1)
    with pytest.raises(NotStored, match="count"):
        pending()
    assert counted.calls == []


@pytest.mark.usefixtures("prefect_harness")
class TestInPrefect:
    def test_a_stage_that_is_begun_ahead_runs_meanwhile_and_is_reused_as_any_other(self, counted, make_run):
        import prefect

        run = make_run()

        @prefect.flow
        def loop():
            pending = counted.ahead(run, number=3)
            other = counted(run, number=4)
            return [pending(), other, counted(run, number=3), counted.ahead(run, number=3)()]

        begun, other, *again = loop()
        assert sorted(counted.calls) == [3, 4]
        assert (begun.result, other.result) == ({"number": 3}, {"number": 4})
        assert [entry.reused for entry in (begun, other, *again)] == [False, False, True, True]
        assert {entry.digest for entry in again} == {begun.digest}
        assert {entry.key for entry in run.used} == {begun.key, other.key}

    def test_a_result_is_reused_while_the_store_holds_it(self, counted, make_run):
        run = make_run()
        first, second = counted(run, number=1), counted(run, number=1)
        assert counted.calls == [1]
        assert (first.reused, second.reused) == (False, True)
        assert second.path == first.path
        assert second.result == {"number": 1}
        assert [used.key for used in run.used] == [first.key]

    @pytest.mark.parametrize("damage", ["deleted", "changed"])
    def test_a_stale_result_is_never_returned(self, counted, make_run, damage):
        run = make_run()
        path = counted(run, number=1).path
        if damage == "deleted":
            path.rename(path.with_name("elsewhere"))
        else:
            (path / "number.txt").write_text("9")
        again = counted(run, number=1)
        assert counted.calls == [1, 1]
        assert (again.path / "number.txt").read_text() == "1"

    def test_two_work_folders_share_no_result(self, counted, make_run, tmp_path):
        counted(make_run(), number=1)
        other = counted(make_run(work_dir=str(tmp_path / "other")), number=1)
        assert counted.calls == [1, 1]
        assert other.path.is_relative_to(tmp_path / "other")

    def test_infrastructure_is_tried_again(self, counted, make_run, monkeypatch):
        counted.failures.append(InfrastructureError("the server was away"))
        counted.task.retry_delay_seconds = 0
        assert counted(make_run(), number=1).result == {"number": 1}
        assert counted.calls == [1, 1]

    def test_bad_input_is_not_tried_again_and_keeps_its_type(self, counted, make_run):
        counted.failures.append(DataError("traces.jsonl: no such trace file"))
        with pytest.raises(DataError, match="no such trace file"):
            counted(make_run(), number=1)
        assert counted.calls == [1]
