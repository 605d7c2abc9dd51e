"""Pass rates carry over from run to run: which curation a run resumes from, and how each trace counts."""

import json

import pandas as pd
import pytest
import yaml

from flows.commands.dry_run import make_plan
from flows.opening import earlier_curation, starting_facts
from flows.setup import resolve_config
from tasks.engine.reading import begin_run
from tasks.records.evidence import EVIDENCE_FILE, remember
from tasks.records.split_chain import CHAIN_FILE, earlier_splits, remember_splits
from tasks.stages.curate import curate_tasks
from tasks.stages.ingest import ingest_traces
from tracewheel.core.errors import DataError
from tracewheel.core.fingerprint import digest_of
from tracewheel.core.store import remove
from tracewheel.curation.curate import curate
from tracewheel.curation.split_record import SplitRecord

pytestmark = pytest.mark.usefixtures("prefect_harness")
FEW = {"train_tasks": 8, "validation_tasks": 1, "held_out_tasks": 1, "harder_tasks": 1, "min_attempts": 2}


class Listener:
    """A reporter that keeps its messages."""

    def __init__(self):
        self.said = []

    def start(self, label): ...

    def move(self, done, total): ...

    def end(self, label, state, seconds): ...

    def say(self, text):
        self.said.append(text)


@pytest.fixture(scope="module")
def logs(profile):
    """Half of the lines of the shipped log."""
    (path,) = yaml.safe_load(profile.read_text())["ingest"]["paths"]
    with open(path, "rb") as stream:
        return stream.readlines()[::2]


@pytest.fixture
def work(profile, logs, tmp_path):
    """A work folder: `write` writes a share of the logs, `begin` begins a run on them and curates, as the flow does."""
    values = yaml.safe_load(profile.read_text())
    values["ingest"], values["curation"] = {"paths": [str(tmp_path / "log.jsonl")]}, FEW
    (tmp_path / "profile.yaml").write_text(yaml.safe_dump(values))

    class Work:
        folder, listener = tmp_path / "run", Listener()

        def write(self, step):
            (tmp_path / "log.jsonl").write_bytes(b"".join(logs[::step]))

        def run(self, *overrides):
            return begin_run(resolve_config(str(tmp_path / "profile.yaml"), list(overrides), str(self.folder)), self.listener)

        def begin(self, *overrides):
            run = self.run(*overrides)
            with run.hold():
                traces = ingest_traces(run, snapshot=run.snapshot)
                start = starting_facts(run, traces)
                splits, lost = earlier_splits(run, start)
                earlier = earlier_curation(run, start)
                return run, traces, start, curate_tasks(run, traces=traces, earlier=earlier, splits=splits, splits_lost=lost)

        def complete(self, *overrides):
            run, traces, start, curated = self.begin(*overrides)
            remember(run, traces, curated, start["evidence"])
            remember_splits(run, traces, curated, start["splits"])
            return curated

        def links(self):
            return json.loads((self.folder / EVIDENCE_FILE).read_text())

    return Work()


@pytest.mark.slow
def test_a_run_on_more_logs_resumes_pass_rates_from_the_last_run(work):
    """Worked by hand: traces that the first run counted have half their weight, new ones all of it."""
    work.write(2)
    first = work.complete()
    work.write(1)
    run, _, start, second = work.begin()
    assert start["evidence"] == first.path.name
    before = set(pd.read_parquet(first.path / "counted.parquet")["trace_id"])
    tasks = pd.read_parquet(second.path / "tasks.parquet").set_index("id")
    episodes = pd.read_parquet(second.path / "episodes.parquet")
    old = episodes["trace_id"].isin(before)
    assert old.any() and not old.all()
    for task_id, own in episodes.groupby("task_id"):
        weights = [0.5 if trace in before else 1.0 for trace in own["trace_id"]]
        solved = sum(weight for weight, success in zip(weights, own["success"], strict=True) if success == 1.0)
        assert tasks.loc[task_id, "posterior"] == pytest.approx((1 + solved) / (2 + sum(weights)))
        assert tasks.loc[task_id, "attempts"] == len(own)
    assert json.loads((run.record.path / "start.json").read_text())["evidence"] == first.path.name
    assert start["splits"]["curated"] == first.path.name
    before, after = SplitRecord.read(first.path), SplitRecord.read(second.path)
    assert after.number == 2 and set(before.states) < set(after.states)
    moved = [key for key, state in before.states.items() if after.states[key].side not in (state.side, "retired")]
    assert len(moved) == second.result["split_ledger"]["gave_way"] == 0


def test_learner_settings_do_not_change_the_data(work):
    work.write(2)
    work.complete()
    work.write(1)
    second, third = work.complete(), work.complete("learner.kl=0.5")
    assert (third.path, third.digest, third.reused) == (second.path, second.digest, True)
    work.write(2)
    again = work.complete("learner.kl=0.25")
    assert again.path.name == work.links()[0]["curated"], "also after a run on other traces"
    assert [link["began_with"] for link in work.links()] == [None, again.path.name]
    _, _, start, other = work.begin("curation.train_tasks=7")
    assert start["splits"]["curated"] == second.path.name, "other splits of known traces begin where the last run ended"
    assert SplitRecord.read(other.path).number == 3
    work.write(3)
    start = work.begin()[2]
    assert start["evidence"] == start["splits"]["curated"] == second.path.name, "new traces resume from the newest"


@pytest.mark.slow
def test_a_resumed_run_keeps_the_evidence_it_started_with(work):
    """Another run completes between this run's curation and its end."""
    work.write(2)
    first = work.complete()
    work.write(1)
    run, _, start, curated = work.begin()
    work.write(3)
    work.complete()
    work.write(1)
    again, _, resumed, same = work.begin()
    assert run.record.run_id == again.record.run_id and start == resumed and start["evidence"] == first.path.name
    assert (same.path, same.digest, same.reused) == (curated.path, curated.digest, True)
    remove(curated.path)
    assert work.begin()[3].digest == curated.digest, "the same bytes when it is made again"


@pytest.mark.slow
def test_a_first_run_makes_the_same_bytes_as_the_command_line(work, tmp_path):
    work.write(1)
    run, traces, start, curated = work.begin()
    assert start["evidence"] is None and not (work.folder / EVIDENCE_FILE).exists()
    curate(run.config, traces.path, tmp_path / "curated")
    assert digest_of(tmp_path / "curated") == curated.digest


def test_a_plan_predicts_the_curation_of_the_run(work):
    work.write(2)
    work.complete()
    work.write(1)
    run = work.run()
    assert make_plan(run)["next"] == "ingest" and run.record.started() is None
    work.begin()
    other = work.run("learner.kl=0.5")
    plan = {stage["stage"]: stage["stored"] for stage in make_plan(other)["stages"]}
    assert (plan["ingest"], plan["curate"], plan["warm_start"]) == (1, 1, 0)
    assert other.record.started() is None, "a plan begins nothing"


def test_a_lost_curation_is_reported_and_pass_rates_start_over(work):
    work.write(2)
    first = work.complete()
    remove(first.path)
    work.write(1)
    _, _, start, curated = work.begin()
    assert start["evidence"] is None
    assert curated.result["split_ledger"]["number"] == 2, "the run's folder has a copy of the record of splits"
    assert any(first.path.name in said and "start over" in said for said in work.listener.said)
    tasks = pd.read_parquet(curated.path / "tasks.parquet")
    assert ((1 + tasks["successes"]) / (2 + tasks["attempts"])).tolist() == pytest.approx(tasks["posterior"].tolist())


@pytest.mark.parametrize("text", ["{}", '[{"traces": "a"}]', '[{"traces": "a", "curated": 1, "began_with": null}]', "[1]", "x"])
def test_a_malformed_evidence_file_is_named(work, text):
    work.write(100)
    work.folder.mkdir()
    (work.folder / EVIDENCE_FILE).write_text(text)
    with pytest.raises(DataError, match=r"run/evidence\.json: not "):
        work.begin()


def test_a_lost_record_of_splits_is_rebuilt_and_said(work):
    work.write(2)
    run, traces, start, first = work.begin("curation.counts=exact")
    remember_splits(run, traces, first, start["splits"])
    remove(first.path)
    (run.record.path / "splits.parquet").unlink()
    before = first.result["split_ledger"]
    work.write(1)
    with pytest.raises(DataError, match=r"fitted to is not known.*curation\.counts"):
        work.begin()
    _, _, _, curated = work.begin("curation.counts=exact")
    ledger = curated.result["split_ledger"]
    assert ledger["lost"] and ledger["number"] == 1 and "The record was lost" in ledger["says"]
    assert any("all of its training side counts as trained on" in said for said in work.listener.said)
    assert ledger["sides"]["train"] >= before["sides"]["train"] - ledger["sides"]["retired"]


@pytest.mark.parametrize("text", ["[]", '{"latest": 1, "began": {}}', '{"latest": null}'])
def test_a_malformed_chain_of_splits_is_named(work, text):
    work.write(100)
    work.folder.mkdir()
    (work.folder / CHAIN_FILE).write_text(text)
    with pytest.raises(DataError, match=r"run/splits\.json: not "):
        work.begin()
