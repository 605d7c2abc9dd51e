"""The order desk's logs: reproducible, about half good, and splits that share no name and no item."""

from pathlib import Path

import pytest

from data.order_desk_logs import FAULTS, HABITS, faulty_calls, give_up, keep_first_choice, log_lines, put_right
from tracewheel.config import CurateSections, load_config
from tracewheel.core.files import read_table
from tracewheel.core.types import Task
from tracewheel.curation.curate import curate
from tracewheel.environments.base import play_calls
from tracewheel.environments.order_desk.environment import OrderDeskEnvironment, direct
from tracewheel.environments.order_desk.noise import BUSY, FIRST_CHOICE
from tracewheel.scoring.verifiers import make_verifier
from tracewheel.traces.ingest import ingest
from tracewheel_projects.demo.deployed_logs import BREAKAGES

PROFILE = Path(__file__).parents[4] / "configs/smollm2.yaml"


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "noisy"])
def noisy(request):
    return request.param


@pytest.fixture(scope="module")
def lines(noisy):
    return list(log_lines(noisy=noisy))


@pytest.fixture(scope="module")
def curated(lines, tmp_path_factory):
    """The profile's own curation of the logs: its folder, and the reports of both stages."""
    folder = tmp_path_factory.mktemp("order_desk")
    (folder / "logs.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    config = load_config(PROFILE, [f"ingest.paths=[{folder / 'logs.jsonl'}]"])
    (folder / "ingested").mkdir()
    (folder / "curated").mkdir()
    read = ingest(config.ingest, folder / "ingested")
    return folder / "curated", read, curate(CurateSections.of(config), folder / "ingested", folder / "curated")


def test_the_same_seed_gives_the_same_bytes_and_another_gives_others(lines, noisy):
    assert list(log_lines(0, noisy=noisy)) == lines
    assert next(log_lines(1, noisy=noisy)) != lines[0]


def test_every_readable_log_is_replayed_and_about_half_are_good(lines, curated, noisy):
    _, read, report = curated
    assert read["kept"] + read["quarantined"] + read["duplicates"] == len(lines)
    assert read["quarantined"] < len(BREAKAGES) + 1
    # Two of the broken lines are conversations all the same: one without the desk in which it could be played again, and
    # one whose call is no JSON, to which the desk replies otherwise than the log has it.
    assert report["funnel"]["replayed"] + 1 == report["funnel"]["traces"] == read["kept"]
    assert report["funnel"]["dropped_traces"] == {"no environment logged": 1}
    assert report["funnel"]["unscored"] == report["drift"]["observations"] == 1
    broken = {"error: the call's arguments are not a JSON object", *(["error: busy, try again"] if noisy else [])}
    assert report["agreement"]["first_difference"]["replayed"] in broken
    assert report["probes"]["fit"] == report["probes"]["probed"]
    least, most = (0.38, 0.5) if noisy else (0.45, 0.6)
    assert least < report["labels"]["mean_label"]["verified"] < most


def test_splits_share_no_name_and_no_item(curated):
    tasks = read_table(curated[0] / "tasks.parquet")
    words = {}
    for split, group in tasks[tasks["split"] != ""].groupby("split"):
        side = "test" if split in ("held_out", "harder") else split
        for row in group.to_dict("records"):
            for order in Task.from_record(row).initial_state["orders"]:
                words.setdefault(side, set()).update([order["item"], *order["customer"].split()])
    assert set(words) == {"train", "validation", "test"}
    assert not words["train"] & words["test"] and not words["train"] & words["validation"]
    assert not words["validation"] & words["test"]


def test_faults_fail_and_the_empty_fault_solves(curated):
    tasks = [Task.from_record(row) for row in read_table(curated[0] / "tasks.parquet").to_dict("records")]
    environment, verifier = OrderDeskEnvironment(), make_verifier("order_desk")
    for task in tasks[::7]:
        for fault in (HABITS[task.family], *[name for name in FAULTS if name not in HABITS.values()], ""):
            play_calls(environment, task, faulty_calls(task, fault))
            assert verifier.verify(task, environment.snapshot())[0] == float(not fault)


def test_an_error_put_right_solves(curated):
    tasks = [Task.from_record(row) for row in read_table(curated[0] / "tasks.parquet").to_dict("records")]
    environment, verifier = OrderDeskEnvironment(), make_verifier("order_desk")
    played = [task for task in tasks if task.family == "status" and BUSY not in task.initial_state]
    assert len(played) > 20
    for task in played:
        messages = play_calls(environment, task, put_right(task))
        assert [message["content"].startswith("error: ") for message in messages if message["role"] == "tool"].count(True) == 1
        assert verifier.verify(task, environment.snapshot())[0] == 1.0


def test_giving_up_and_keeping_the_first_choice_fail(curated, noisy):
    tasks = [Task.from_record(row) for row in read_table(curated[0] / "tasks.parquet").to_dict("records")]
    environment, verifier = OrderDeskEnvironment(), make_verifier("order_desk")
    kept = [(task, keep_first_choice(task)) for task in tasks if FIRST_CHOICE in task.initial_state]
    given_up = [(task, give_up(task, direct(task))) for task in tasks if BUSY in task.initial_state]
    assert bool(kept) == bool(given_up) == noisy
    for task, calls in kept + given_up:
        play_calls(environment, task, calls)
        assert verifier.verify(task, environment.snapshot())[0] == 0.0
