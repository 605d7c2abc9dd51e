"""Each stored result is indexed once, what is gone leaves the index, and what is damaged spoils nothing else."""

import shutil

import pytest

from tracewheel.dashboard.episodes import Episodes
from tracewheel.dashboard.index import find, schema
from tracewheel.dashboard.index.build import Indexer
from tracewheel.dashboard.index.facts import MOST_WORDS, outcome_of, parts_of, words_of
from tracewheel.dashboard.index.process import Indexes, is_current, progress_of
from tracewheel.dashboard.library import Library
from tracewheel.dashboard.sources import sources_of


@pytest.fixture
def own(shown, indexed, tmp_path):
    """A copy of the shipped runs with their index, to change."""
    indexed.execute("SELECT 1").fetchone()
    place = next(iter(Library([shutil.copytree(shown, tmp_path / "demo")]).places.values()))
    return place, place.path / schema.FOLDER


def test_the_index_has_what_the_files_have(library, indexed, run_ids):
    place = next(iter(library.places))
    for run_id in run_ids:
        sources = sources_of(library.run(place, run_id))
        (row,) = Episodes(sources).rows(
            "SELECT count(*) n, sum((outcome = 'solved')::INTEGER) solved, sum(tokens) t, sum(generated) g FROM {episodes}"
        )
        run = find.run_number(indexed, run_id)
        ours = indexed.execute(
            "SELECT count(*), sum(e.outcome = 'solved'), sum(e.tokens), sum(e.generated) FROM uses u "
            "JOIN episodes e ON e.source = u.source WHERE u.run = ?",
            (run,),
        ).fetchone()
        assert tuple(ours) == (row["n"], row["solved"], row["t"], row["g"])
    kinds = dict(indexed.execute("SELECT fault, count(*) FROM episodes WHERE outcome = 'failed' GROUP BY fault").fetchall())
    assert "" not in kinds and {"early_stop", "wrong_final_state"} <= kinds.keys()


def test_a_second_pass_reads_nothing_again(own):
    place, folder = own
    before = (folder / schema.FILE).stat().st_mtime_ns, progress_of(folder, is_building=False)
    assert is_current(place, folder)
    Indexer(place, folder).run()
    after = progress_of(folder, is_building=False)
    assert after == before[1] and after.is_whole and after.episodes > 2000


def test_what_the_store_freed_leaves_the_index(own):
    place, folder = own
    database = schema.open_for_reading(folder)
    source, entry, count = database.execute("SELECT id, entry, episodes FROM sources WHERE entry LIKE 'rollout-%'").fetchone()
    every = database.execute("SELECT count(*) FROM episodes").fetchone()[0]
    database.close()
    shutil.rmtree(place.path / "store" / entry)
    Indexer(place, folder).run()
    database = schema.open_for_reading(folder)
    assert database.execute("SELECT count(*) FROM episodes").fetchone()[0] == every - count
    assert not database.execute("SELECT 1 FROM episodes WHERE source = ?", (source,)).fetchone()
    found = find.search(database, "manifest", {}, [], 0, 10_000)[0]
    assert found and entry not in {row["entry"] for row in found}


def test_a_run_that_was_deleted_leaves_the_index(own, run_ids):
    place, folder = own
    shutil.rmtree(place.path / run_ids[1])
    assert not is_current(place, folder)
    Indexer(place, folder).run()
    assert is_current(place, folder)
    database = schema.open_for_reading(folder)
    found = find.search(database, "manifest", {}, [], 0, 10_000)[0]
    assert found and {row["run"] for row in found} == {run_ids[0]}


def test_a_damaged_result_is_named_and_the_rest_is_found(own):
    place, folder = own
    file = sorted((place.path / "store").glob("rollout-*/trajectories.parquet"))[0]
    file.write_bytes(file.read_bytes()[:200])
    schema.drop(folder)
    Indexer(place, folder).run()
    progress = progress_of(folder, is_building=False)
    assert progress.damaged == 1 and progress.is_whole and progress.episodes > 2000


def test_nothing_is_written_after_somebody_deleted_the_cache(own, monkeypatch):
    place, folder = own
    schema.drop(folder)
    index, done = Indexer._index, []

    def then_deleted(self, *values):
        index(self, *values)
        done.append(values)
        shutil.rmtree(folder)

    monkeypatch.setattr(Indexer, "_index", then_deleted)
    Indexer(place, folder).run()
    assert len(done) == 1 and not folder.exists()


def test_a_process_of_its_own_builds_it(own):
    place, folder = own
    schema.drop(folder)
    indexes = Indexes(Library([place.path]))
    own_place = next(iter(indexes.library.places.values()))
    first = indexes.fresh(own_place, sorted(own_place.run_ids())[0])
    assert first.is_building and not first.is_whole
    indexes._looking[own_place.name].join(timeout=60)
    assert indexes._processes[own_place.name].wait(timeout=60) == 0
    assert indexes.fresh(own_place).is_whole and is_current(own_place, folder)


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
