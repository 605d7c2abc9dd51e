"""Splits stay: growth moves nothing, links retire what was used, and a lost record comes back the same from the logs."""

from collections import Counter
from random import Random

import pandas
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from tracewheel.config import CurationConfig
from tracewheel.core.errors import DataError
from tracewheel.curation.side_replay import TraceLinks, side_of
from tracewheel.curation.split_keeping import Candidates, keep_splits
from tracewheel.curation.split_record import SplitRecord, State, identity_key, joined
from tracewheel.curation.splits import components

SIZES = {"train_tasks": 4, "validation_tasks": 3, "held_out_tasks": 5, "harder_tasks": 2, "harder_tier": 3, "min_attempts": 1}
CONFIG = CurationConfig(counts="exact", recent_share=0.0, **SIZES)
TURNING = CONFIG.model_copy(update={"recent_share": 0.5})
USED = ("train", "validation", "held_out", "harder")
LINK = ("near",)


def trace(number, task, user=None, tier=None, copy="", day=None):
    return {
        "id": f"trace-{number:05}",
        "task_id": f"t{task}",
        "fingerprint": f"f{task}",
        "user": user,
        "copy": copy or f"c{task}",
        "created": f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z",
        "success": 1.0,
        "tier": tier if tier is not None else 3 if task % 4 == 0 else 2,
    }


def plain(count, first=0):
    """Traces of as many tasks, of a user each."""
    return [trace(number, number, f"u{number}") for number in range(first, first + count)]


def keep(traces, earlier=None, config=CONFIG):
    """The split of each task, the record and the ledger."""
    kept, tasks = keep_all(traces, earlier, config)
    return dict(zip(tasks["id"], kept.split, strict=True)), kept.record, kept.ledger


def keep_all(traces, earlier=None, config=CONFIG):
    """The whole result, and the tasks."""
    rows = pandas.DataFrame(traces)
    tasks = rows.groupby("task_id").agg(tier=("tier", "first"), attempts=("id", "size")).reset_index()
    tasks = tasks.rename(columns={"task_id": "id"}).assign(family="a")
    times = pandas.to_datetime(rows["created"]).groupby(rows["task_id"]).agg(["min", "max"])
    tasks["component"] = tasks["id"].map(components(rows))
    tasks["first_seen"], tasks["last_seen"] = tasks["id"].map(times["min"]), tasks["id"].map(times["max"])
    return keep_splits(TraceLinks.of(rows, None, LINK), Candidates(tasks, tasks), config, earlier), tasks


def sides(record):
    return {key: state.side for key, state in record.states.items()}


def test_tasks_without_tiers_fill_the_other_sets():
    """`harder_tasks: 0`, in the first curation and in the next."""
    config = CONFIG.model_copy(update={"harder_tasks": 0, "harder_tier": 9})
    split, record, _ = keep(plain(40), config=config)
    assert Counter(split.values()) == {"train": 4, "validation": 3, "held_out": 5, "": 28}
    assert keep(plain(44), record, config)[0].items() >= {task: own for task, own in split.items() if own}.items()


def tasks_of(split, *names):
    return [task for task, own in sorted(split.items()) if own in names]


def linking(number, *tasks, user="both"):
    """Traces of one user at several tasks."""
    return [trace(number + place, int(task[1:]), user) for place, task in enumerate(tasks)]


def test_growth_moves_nothing():
    split, record, _ = keep(plain(60))
    for count in (63, 90, 200):
        later, grown, ledger = keep(plain(count), record)
        assert {task: later[task] for task in split if split[task]} == {task: own for task, own in split.items() if own}
        assert sides(record).items() <= sides(grown).items()
        assert ledger["new_tasks"] == count - len(split) and ledger["number"] == record.number + 1
        assert ledger["gave_way"] == ledger["retired_held_out"] == 0
        assert ledger["first_held_out"] == {"tasks": 7, "still": 7}
        split, record = later, grown


def test_new_components_are_placed_by_their_hash():
    _, record, _ = keep(plain(60))
    _, grown, _ = keep(plain(2000), record)
    found = Counter(grown.states[identity_key("task", f"t{task}")].side for task in range(60, 2000))
    assert found["test"] / 1940 == pytest.approx(CONFIG.shares.test, abs=0.03)
    assert found["validation"] / 1940 == pytest.approx(CONFIG.shares.validation, abs=0.03)
    assert grown.states[identity_key("user", "u777")].side == side_of("f777", CONFIG.shares)


def test_the_same_logs_again_give_the_same_record(tmp_path):
    split, record, ledger = keep(plain(60))
    again, same, second = keep(plain(60), record)
    assert (again, same) == (split, record) and second["number"] == ledger["number"] == 1
    record.write(tmp_path / "splits.parquet")
    assert SplitRecord.read(tmp_path) == record


def test_what_was_trained_on_retires_the_held_out_task_it_is_linked_to():
    split, record, _ = keep(plain(60))
    trained, held = tasks_of(split, "train")[0], tasks_of(split, "held_out")[0]
    later, after, ledger = keep([*plain(60), *linking(70, trained, held)], record)
    assert later[trained] == later[held] == ""
    assert (ledger["gave_way"], ledger["gave_way_trained"], ledger["retired_held_out"]) == (1, 1, 1)
    assert ledger["first_held_out"]["still"] == 6
    assert after.states[identity_key("user", "both")].side == "retired"
    more, _, _ = keep([*plain(300), *linking(400, trained, held)], after)
    assert more[trained] == more[held] == "" and Counter(more.values())["held_out"] == 5, "another one takes its place"


def test_training_tasks_not_yet_trained_on_give_way_and_the_held_out_task_stays():
    split, record, _ = keep(plain(200))
    side = {task: record.states[identity_key("task", task)] for task in split}
    spare = next(task for task, state in side.items() if state.side == "train" and not state.trained)
    held = tasks_of(split, "held_out")[0]
    later, _, ledger = keep([*plain(200), *linking(300, spare, held)], record)
    assert later[held] == "held_out" and later[spare] != "train"
    assert (ledger["gave_way"], ledger["gave_way_trained"], ledger["retired_held_out"]) == (1, 0, 0)


def test_what_was_selected_on_is_not_held_out():
    split, record, _ = keep(plain(60))
    validation, held = tasks_of(split, "validation")[0], tasks_of(split, "held_out")[0]
    later, _, ledger = keep([*plain(60), *linking(70, validation, held)], record)
    assert later[validation] == later[held] == ""
    assert (ledger["retired_held_out"], ledger["retired_validation"]) == (1, 1)


def test_a_deleted_training_task_is_known_when_a_copy_comes_back():
    """Its traces and its user are gone from the logs; the copy has other numbers and another user."""
    split, record, _ = keep(plain(60))
    trained = int(tasks_of(split, "train")[0][1:])
    left = [one for one in plain(60) if one["task_id"] != f"t{trained}"]
    later, after, ledger = keep(left, record)
    assert ledger["gone_tasks"] == 1 and ledger["first_held_out"]["still"] == 7
    kept = {task: own for task, own in split.items() if own and task != f"t{trained}"}
    assert kept.items() <= later.items(), "deletions move nothing"
    copies = {f"t{task}": trace(1000 + task, task, f"v{task}", copy=f"c{trained}") for task in range(500, 520)}
    back, _, _ = keep([*left, *copies.values()], after)
    assert {back[task] for task in copies} <= {"train", ""}
    assert any(side_of(copies[task]["fingerprint"], CONFIG.shares) != "train" for task in copies), "their hashes say otherwise"


def test_the_record_holds_hashes_only(tmp_path):
    logs = [trace(number, number, f"maria.{number}@example.org") for number in range(60)]
    _, record, _ = keep(logs)
    record.write(tmp_path / "splits.parquet")
    table = pandas.read_parquet(tmp_path / "splits.parquet")
    assert table["key"].str.fullmatch("[0-9a-f]{16}").all()
    assert b"maria" not in (tmp_path / "splits.parquet").read_bytes()


def test_a_rotation_releases_the_oldest_held_out_tasks_and_never_the_reverse():
    config = CurationConfig.model_validate({**CONFIG.model_dump(), "rotate": {"every": 2, "share": 0.4}})
    split, record, _ = keep(plain(60), config=config)
    ever_trained, rotated = set(tasks_of(split, "train", "validation")), []
    for number in range(2, 9):
        split, record, ledger = keep(plain(60 + 40 * number), record, config)
        assert not ever_trained & set(tasks_of(split, "held_out", "harder"))
        ever_trained |= set(tasks_of(split, "train", "validation"))
        rotated.append(ledger["rotated"])
        assert Counter(split.values())["held_out"] == 5
    assert rotated[1::2] == [0, 0, 0] and min(rotated[::2]) >= 1
    assert ledger["first_held_out"]["still"] < 7


def test_a_task_that_is_released_leaves_the_reserve_and_none_that_was_never_held_out_is_released():
    """So nothing that a candidate is still to be confirmed on can be trained on, at once or later."""
    values = {**CONFIG.model_dump(), "rotate": {"every": 1, "share": 0.6}, "recent_share": 0.5}
    config, record, untested, released = CurationConfig.model_validate(values), None, set(), set()
    for number in range(1, 8):
        kept, tasks = keep_all(plain(60 + 40 * number), record, config)
        split = dict(zip(tasks["id"], kept.split, strict=True))
        held, record = set(tasks_of(split, "held_out", "harder")), kept.record
        untested -= held
        side = {task: record.states[identity_key("task", task)].side for task in split}
        assert {side[task] for task in kept.reserve} <= {"test"} and not released & set(kept.reserve)
        assert {side[task] for task in untested} <= {"test"}
        untested |= set(kept.reserve) - {task for task in split if identity_key("task", task) in record.held}
        released |= {task for task in split if side[task] == "train" and identity_key("task", task) in record.held}
    assert released and untested


def test_rotation_stops_where_no_other_task_could_take_the_place():
    config = CurationConfig.model_validate({**CONFIG.model_dump(), "rotate": {"every": 1, "share": 1.0}, "held_out_tasks": 40})
    logs = plain(60 * 2)
    split, record, _ = keep(logs, config=config)
    later, _, _ = keep([*logs, trace(5000, 3, "u3")], record, config)
    assert Counter(later.values())["held_out"] == Counter(split.values())["held_out"] == 40


@pytest.mark.parametrize("change", [{"split": "temporal"}, {"rotate": {"every": 2}}, {"counts": "auto"}])
def test_a_record_that_the_logs_cannot_tell_is_not_guessed(change):
    config = CurationConfig.model_validate({**CONFIG.model_dump(), **change})
    with pytest.raises(DataError, match="record of splits is lost.*--earlier"):
        keep(plain(60), SplitRecord(lost=True), config)


def test_a_split_by_time_does_not_hold_out_what_was_trained_on():
    config = CurationConfig.model_validate({**CONFIG.model_dump(), "split": "temporal", "harder_tasks": 1})
    first = plain(60)
    split, record, _ = keep(first, config=config)
    ever = {"train": set(tasks_of(split, "train")), "validation": set(tasks_of(split, "validation"))}
    # Everything trained on is tried again by new users, who would make its component the latest were it not for its start.
    deleted = {one["task_id"] for one in first if one["task_id"] in ever["train"]}
    again = [trace(200 + n, int(task[1:]), f"w{n}") for n, task in enumerate(sorted(deleted | ever["validation"]))]
    rest = [one for one in first if one["task_id"] not in deleted | ever["validation"]]
    later, _, _ = keep([*rest, *again], record, config)
    assert not (ever["train"] | ever["validation"]) & set(tasks_of(later, "held_out", "harder"))
    assert not ever["train"] & set(tasks_of(later, "validation"))
    without, _, _ = keep([*rest, *again], None, config)
    assert (ever["train"] | ever["validation"]) & set(tasks_of(without, "held_out", "harder")), "the record made the difference"


def test_states_join_in_any_order():
    train, used = State("train", 3), State("train", 1, trained=1)
    validation, test = State("validation", 2, selected=2), State("test", 2, tested=2)
    assert joined([train, used]) == State("train", 1, trained=1)
    assert joined([train, test]) == State("test", 2, tested=2)
    assert joined([used, test]).side == joined([test, used]).side == "retired"
    assert joined([validation, test]).side == "retired"
    assert joined([train, validation]).side == "validation"
    assert joined([joined([used, test]), train]).side == "retired"


@settings(max_examples=10)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.5, 1.0]))
def test_any_cut_of_the_logs_into_runs_keeps_the_law(seed, share):
    """Random traces with users that span tasks, curated at random lengths of the log, with the record carried.

    Nothing trained or selected on is held out later, and nothing trained on validates later. A record rebuilt from all logs
    has the same sides, except that it retires whatever was linked to the training side.
    """
    random = Random(seed)
    traces = [trace(n, random.randrange(20 + n), f"u{random.randrange(120 + n)}") for n in range(140)]
    record, trained, selected, config = None, set(), set(), CONFIG.model_copy(update={"recent_share": share})
    for cut in sorted({60, 140, *random.sample(range(60, 140), 4)}):
        try:
            split, record, ledger = keep(traces[:cut], record, config)
        except DataError:  # too few are left for one of the sets: such logs say nothing here
            reject()
        links = components(pandas.DataFrame(traces[:cut]))
        held = {links[task] for task in tasks_of(split, "held_out", "harder")}
        assert not held & {links[task] for task in trained | selected}
        assert not {links[task] for task in tasks_of(split, "validation")} & {links[task] for task in trained}
        trained |= set(tasks_of(split, "train"))
        selected |= set(tasks_of(split, "validation"))
        assert ledger["first_held_out"]["still"] <= ledger["first_held_out"]["tasks"]
    try:
        again, rebuilt, _ = keep(traces, SplitRecord(lost=True), config)
    except DataError:
        reject()
    links = components(pandas.DataFrame(traces))
    used = {links[task] for task in trained | selected}
    assert not used & {links[task] for task in tasks_of(again, "held_out", "harder")}, "a lost record holds out nothing used"
    once = keep(traces, config=config)[1]
    for key, state in record.states.items():
        assert rebuilt.states[key].side in (state.side, "retired"), key
        assert state.side in (once.states[key].side, "retired"), "in one curation of all logs nothing had been used yet"
    assert record.places == rebuilt.places == once.places and record.founding == rebuilt.founding == once.founding


@settings(max_examples=15)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.5]))
def test_sets_fitted_to_small_logs_keep_the_law_as_the_logs_grow(seed, share):
    random = Random(seed)
    traces = [trace(n, random.randrange(8 + n), f"u{random.randrange(10 + 2 * n)}") for n in range(90)]
    config = CurationConfig(**SIZES | {"min_attempts": 4, "train_tasks": 9, "held_out_tasks": 9, "recent_share": share})
    record, trained, selected = None, set(), set()
    for cut in sorted({90, *random.sample(range(8, 90), 5)}):
        try:
            split, record, ledger = keep(traces[:cut], record, config)
        except DataError:  # fewer than three components, or a side that retired
            continue
        links = components(pandas.DataFrame(traces[:cut]))
        held = {links[task] for task in tasks_of(split, "held_out", "harder")}
        assert not held & {links[task] for task in trained | selected}
        assert not {links[task] for task in tasks_of(split, "validation")} & {links[task] for task in trained}
        assert all(tasks_of(split, own) for own in ("train", "validation", "held_out")), "no set is empty"
        trained |= set(tasks_of(split, "train"))
        selected |= set(tasks_of(split, "validation"))
        assert ledger["first_held_out"]["still"] <= ledger["first_held_out"]["tasks"]
    assert trained and selected


def test_new_tasks_enter_full_sets_and_the_first_half_stays():
    first, record, _ = keep(plain(60), config=TURNING)
    for count in (400, 800):
        split, record, ledger = keep(plain(count), record, TURNING)
        assert Counter(split.values()) | Counter({"": 0}) == Counter(
            {"train": 4, "validation": 3, "held_out": 5, "harder": 2, "": count - 14}
        )
        newer = {name: [task for task in tasks_of(split, name) if int(task[1:]) >= 60] for name in USED}
        assert {name: len(tasks) for name, tasks in newer.items()} == {"train": 2, "validation": 2, "held_out": 2, "harder": 1}
        assert min(int(task[1:]) for tasks in newer.values() for task in tasks) > count - 60, "the most recent ones"
        assert all(set(tasks_of(split, name)) - set(newer[name]) <= set(tasks_of(first, name)) for name in USED)
        assert ledger["newer"] == {name: len(tasks) for name, tasks in newer.items()}
    assert ledger["first_held_out"]["still"] == 4


def test_a_task_that_left_its_set_keeps_its_side_for_ever():
    first, record, _ = keep(plain(60), config=TURNING)
    known = sides(record)
    for count in (200, 400):
        _, record, _ = keep(plain(count), record, TURNING)
        assert known.items() <= sides(record).items()
        known = sides(record)
    # Those that left come back when they are asked again, into no other set.
    again = [trace(400 + n, int(task[1:]), f"u{task[1:]}") for n, task in enumerate(tasks_of(first, *USED))]
    back, _, _ = keep([*plain(400), *again], record, TURNING)
    assert {task: back[task] for task in tasks_of(first, *USED)}.items() <= first.items()


def test_a_few_new_tasks_change_no_large_set():
    config = TURNING.model_copy(update={"held_out_tasks": 40})
    logs = plain(400)
    split, record, _ = keep(logs, config=config)
    held, changed = tasks_of(split, "held_out"), 0
    for count in range(404, 441, 4):
        split, record, _ = keep(plain(count), record, config)
        changed += tasks_of(split, "held_out") != held
        held = tasks_of(split, "held_out")
    assert 1 <= changed <= 4, "about a quarter of forty new tasks are held out, and four of them are a step"


def test_the_hardest_tier_stays_in_the_training_set():
    """Where only easy tasks come, the harder tier still is one above the hardest that is trained on."""
    tiers = [3 if n % 4 == 0 else 2 if n < 100 and n % 3 == 0 else 1 for n in range(300)]
    logs = [trace(n, n, f"u{n}", tier=tier) for n, tier in enumerate(tiers)]
    config, record = CONFIG.model_copy(update={"recent_share": 1.0}), None
    for count in (100, 300):
        split, record, _ = keep(logs[:count], record, config)
        trained = [int(task[1:]) for task in tasks_of(split, "train")]
        assert 2 in {tiers[task] for task in trained}
    assert sum(task >= 100 for task in trained) == 3


@settings(max_examples=8)
@given(st.integers(0, 10_000), st.sampled_from([0.5, 1.0]))
def test_any_cut_of_the_logs_gives_the_same_sets(seed, share):
    """Carried from night to night, curated once, or rebuilt: tasks are tried again, and nothing links them."""
    random, config = Random(seed), CONFIG.model_copy(update={"recent_share": share})
    traces = [trace(n, task := random.randrange(max(0, n // 3), 30 + n), f"u{task}") for n in range(200)]
    record = None
    for cut in sorted({100, 200, *random.sample(range(100, 200), 2)}):
        split, record, _ = keep(traces[:cut], record, config)
    once, whole, _ = keep(traces, config=config)
    rebuilt, again, _ = keep(traces, SplitRecord(lost=True), config)
    assert split == once == rebuilt
    assert record.founding == whole.founding == again.founding is not None
    assert keep(traces, record, config)[:2] == (split, record)


def test_a_record_of_an_earlier_version_counts_what_it_knows_as_the_first():
    split, record, _ = keep(plain(60))
    later, _, _ = keep(plain(160), record)  # as that version filled the sets, and wrote no founding
    old = SplitRecord(record.number, record.logs, record.states, record.kinds, record.places, record.held)
    turned, now, _ = keep(plain(160), old, TURNING)
    assert later != turned and now.founding == 60
    assert set(tasks_of(turned, *USED)) - set(tasks_of(split, *USED))


def test_a_split_by_time_needs_no_turnover():
    config = TURNING.model_copy(update={"split": "temporal", "harder_tasks": 1})
    still = config.model_copy(update={"recent_share": 0.0})
    assert keep(plain(60), config=config)[0] == keep(plain(60), config=still)[0]


def test_the_reserve_is_the_test_side_beyond_its_sets_in_order_for_five_nights():
    kept, tasks = keep_all(plain(60))
    tiers, split = dict(zip(tasks["id"], tasks["tier"], strict=True)), dict(zip(tasks["id"], kept.split, strict=True))
    test = [task for task in tiers if kept.record.states[identity_key("task", task)].side == "test" and tiers[task] < 3]
    place = {task: kept.record.places[identity_key("task", task)] for task in test}
    assert kept.reserve == sorted((task for task in test if not split[task]), key=place.__getitem__)
    assert kept.reserve and not any(split[task] for task in kept.reserve)
    many, _ = keep_all(plain(400))
    assert len(many.reserve) == 5 * SIZES["held_out_tasks"]
    grown, _ = keep_all(plain(120), kept.record)
    assert grown.reserve[: len(kept.reserve)] == kept.reserve, "new logs add to it"
    held = next(task for task, own in split.items() if own == "held_out")
    linked, _ = keep_all([*plain(60), trace(60, int(held[1:]), f"u{kept.reserve[0][1:]}")], kept.record)
    assert linked.reserve == kept.reserve[1:], "a task of a user with a held-out task leaves it"
