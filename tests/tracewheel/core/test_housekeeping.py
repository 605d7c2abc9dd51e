"""What of a store can be freed, in bytes, and freeing it."""

import os
import subprocess
import sys

import pytest

from tracewheel.core.housekeeping import bytes_in, entries_of, free, freeable
from tracewheel.core.store import Store


@pytest.fixture
def store(tmp_path):
    """A store of two ingests, whose first part is one file under two names, and a curation."""
    store = Store(tmp_path / "store")

    def write(out, earlier=None):
        if earlier:
            os.link(earlier.path / "part-0", out / "part-0")
        (out / ("part-1" if earlier else "part-0")).write_bytes(b"x" * 1000)

    first = store.make("ingest", "aa", write)
    store.make("ingest", "bb", lambda out: write(out, first))
    store.make("warm-start", "cc", lambda out: (out / "adapter").write_bytes(b"y" * 500) and None)
    return store


@pytest.mark.parametrize(
    ("keep", "freed"),
    [
        ({"ingest-bb"}, {"ingest": 0, "warm-start": 500}),  # the first ingest's only file lives on in the second
        ({"ingest-aa"}, {"ingest": 1000, "warm-start": 500}),
        (set(), {"ingest": 2000, "warm-start": 500}),
    ],
)
def test_the_bytes_that_are_said_are_the_bytes_that_are_freed(store, keep, freed):
    found = freeable(store.root, keep)
    facts = {name: (store.root / ".facts" / f"{name}.json").stat().st_size for name in entries_of(store.root)}
    for stage in freed:
        freed[stage] += sum(size for name, size in facts.items() if name not in keep and name.startswith(stage))
    assert found.sizes == freed
    before = bytes_in(store.root)
    free(found)
    assert before - bytes_in(store.root) == found.total
    assert set(entries_of(store.root)) == keep
    for name in keep:
        assert store.find(*name.rsplit("-", 1)) is not None


def test_what_the_facts_of_lost_entries_take_is_freed_too(store):
    (store.root / ".facts" / "score-dd.json").write_text("{}")
    (store.root / ".beside" / "score-dd").mkdir(parents=True)
    keep = entries_of(store.root)
    assert freeable(store.root, keep).sizes == {"facts": 2}
    free(freeable(store.root, keep))
    assert freeable(store.root, keep).total == 0


def test_a_kill_half_way_leaves_whole_entries_and_the_rest_is_freed_by_the_next(store):
    """The process is killed when it has deleted the first file of an entry."""
    for number in range(3):
        store.make("many", str(number), lambda out: [(out / f"{file}").write_bytes(b"z" * 10) for file in range(3)] and None)
    program = (
        "import os, shutil, signal, sys\n"
        "from pathlib import Path\n"
        "from tracewheel.core.housekeeping import free, freeable\n"
        "seen = []\n"
        "sys.addaudithook(lambda event, args: event == 'os.remove' and (seen.append(1), len(seen) == 8 and "
        "os.kill(os.getpid(), signal.SIGKILL)))\n"
        "root = Path(sys.argv[1])\n"
        "free(freeable(root, {'ingest-bb'}))\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(store.root)]).returncode == -9
    left = set(entries_of(store.root))
    assert "ingest-bb" in left
    assert len(left) < 6
    for name in left:
        assert store.find(*name.rsplit("-", 1)) is not None
    with store.exclusive():
        free(freeable(store.root, {"ingest-bb"}))
    assert [path.name for path in store.root.iterdir() if path.name not in (".facts", ".lock")] == ["ingest-bb"]
    assert [path.name for path in (store.root / ".facts").iterdir()] == ["ingest-bb.json"]
