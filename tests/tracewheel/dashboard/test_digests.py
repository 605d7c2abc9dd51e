"""Each stored result is read once, what is gone is found no more, and what is damaged spoils nothing else."""

import shutil

import pytest

from tracewheel.dashboard.digests import FOLDER, Digests
from tracewheel.dashboard.episodes import Episodes
from tracewheel.dashboard.facts import MOST_WORDS, outcome_of, parts_of, words_of
from tracewheel.dashboard.find import Asked, count_of, episodes_of, terms_of
from tracewheel.dashboard.library import Library
from tracewheel.dashboard.sources import sources_of

EVERYTHING = 600.0


@pytest.fixture
def own(shown, shelf, tmp_path):
    """A copy of the shipped runs with their digests, to change."""
    assert shelf.is_whole
    library = Library([shutil.copytree(shown, tmp_path / "demo")])
    return next(iter(library.places.values())), Digests(library)


def found_in(shelf, words="manifest"):
    return episodes_of(shelf, Asked(terms=terms_of(words), shown=10_000))[0]


def test_the_digests_have_what_the_files_have(library, run_ids):
    digests = Digests(library)
    place = next(iter(library.places.values()))
    for run_id in run_ids:
        (row,) = Episodes(sources_of(library.run(place.name, run_id))).rows(
            "SELECT count(*) n, sum((outcome = 'solved')::INTEGER) solved, sum(tokens) t, sum(generated) g FROM {episodes}"
        )
        ours, count = episodes_of(digests.of(place, [run_id], EVERYTHING), Asked(shown=10_000))
        solved = sum(one["outcome"] == "solved" for one in ours)
        assert (count, solved) == (len(ours), row["solved"]) and count == row["n"]
        assert [sum(one[name] for one in ours) for name in ("tokens", "generated")] == [row["t"], row["g"]]
        kinds = {one["fault"] for one in ours if one["outcome"] == "failed"}
        assert "" not in kinds and {"early_stop", "wrong_final_state"} <= kinds


def test_a_request_makes_digests_within_its_time_and_the_next_goes_on(own):
    place, digests = own
    shutil.rmtree(place.path / FOLDER)
    first = digests.of(place, seconds=0.0)
    assert first.read == 1 and not first.is_whole and count_of(first) > 0
    assert digests.of(place, seconds=0.0).read == 2
    whole = digests.of(place, seconds=EVERYTHING)
    assert whole.is_whole and whole.read == whole.results > 2 and count_of(whole) > 2000
    files = {path: path.stat().st_mtime_ns for path in (place.path / FOLDER).iterdir()}
    assert digests.of(place) == whole and {path: path.stat().st_mtime_ns for path in files} == files, "each is made once"


def test_what_the_store_freed_is_found_no_more(own):
    place, digests = own
    before = digests.of(place)
    count = count_of(before)
    entry = next(source.entry for _, _, source, _ in before.uses if source.kind == "rollout")
    shutil.rmtree(place.path / "store" / entry)
    after = digests.of(place)
    assert after.is_whole and count_of(after) < count
    assert found_in(after) and entry not in {row["entry"] for row in found_in(after)}
    assert not list((place.path / FOLDER).glob(f"*{entry}*"))


def test_a_run_that_was_deleted_is_found_no_more(own, run_ids):
    place, digests = own
    assert {row["run"] for row in found_in(digests.of(place))} == set(run_ids)
    shutil.rmtree(place.path / run_ids[1])
    assert {row["run"] for row in found_in(digests.of(place))} == {run_ids[0]}


def test_a_damaged_result_is_counted_and_the_rest_is_found(own):
    place, digests = own
    file = sorted((place.path / "store").glob("rollout-*/trajectories.parquet"))[0]
    file.write_bytes(file.read_bytes()[:200])
    shutil.rmtree(place.path / FOLDER)
    shelf = digests.of(place, seconds=EVERYTHING)
    assert shelf.damaged == 1 and shelf.is_whole and count_of(shelf) > 2000


def test_nothing_is_read_into_a_folder_that_cannot_be_written_to(own, monkeypatch):
    place, digests = own
    shutil.rmtree(place.path / FOLDER)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert digests.of(place, seconds=EVERYTHING).is_whole and not (place.path / FOLDER).exists()


def test_a_missing_score_is_no_failure():
    assert outcome_of(None, None, {}) == ("not scored", None)
    assert outcome_of("unscored", None, {}) == ("unscored", None)
    assert outcome_of("scored", 0.9, {"success": 1.0, "overlong_penalty": -0.1}) == ("solved", 1.0)
    assert outcome_of("scored", 0.4, {"success": 0.0}) == ("partial", 0.0)
    assert parts_of({"success": 0.0, "own": 0.0, "own.untouched": 1.0, "objective.cost": 2.0, "flawed_penalty": -1.0}) == {
        "untouched": 1.0
    }


def test_words_are_those_of_people_tools_and_policy():
    call = {"id": "1", "function": {"name": "move", "arguments": '{"to": "/done"}'}}
    text = words_of(
        [
            {"role": "system", "content": "shared by all"},
            {"role": "user", "content": [{"type": "text", "text": "file it"}]},
            {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm"},
            {"role": "tool", "content": "moved", "tool_call_id": "1"},
        ]
    )
    assert text.split("\n") == ["file it", "hm", 'move {"to": "/done"}', "moved"]
    assert len(words_of([{"role": "user", "content": "x" * (MOST_WORDS + 5)}])) == MOST_WORDS
