"""DVC's outputs, cache and local remotes are found by its own files, and searched."""

import json

import pytest

from tracewheel.core.errors import DataError
from tracewheel_forgetting.dvc_places import dvc_places
from tracewheel_forgetting.file_search import Searcher

LOCK = """
schema: '2.0'
stages:
  ingest: {cmd: x, outs: [{path: data/ingested, md5: a.dir}]}
  part@one: {cmd: x, outs: [{path: made, md5: b}]}
  gone: {cmd: x, outs: [{path: data/not/there, md5: c}]}
"""


@pytest.fixture
def project(tmp_path):
    """A project as DVC 3 leaves it, with a remote in a folder beside it."""
    root = tmp_path / "project"
    for folder in (".dvc/cache/files/md5/ab", ".dvc/tmp/exps", "data/ingested", "logs", "work"):
        (root / folder).mkdir(parents=True)
    (tmp_path / "remote" / "files").mkdir(parents=True)
    (root / ".dvc" / "config").write_text("[core]\n    remote = near\n['remote \"near\"']\n    url = ../../remote\n")
    (root / ".dvc" / "config.local").write_text("['remote \"far\"']\n    url = s3://bucket/place\n")
    (root / "dvc.lock").write_text(LOCK)
    (root / "dvc.yaml").write_text("stages: {part: {foreach: [one], do: {cmd: x, wdir: work, outs: [made]}}}")
    (root / "logs" / "log.jsonl.dvc").write_text("outs: [{path: log.jsonl, md5: d}]")
    return root


def names(root, searcher, without=()):
    return [path.relative_to(root.parent).as_posix() for path in dvc_places(root / "data").search(searcher, list(without))]


def test_copies_in_every_place_are_found(project):
    told = json.dumps({"user": "user-3"})
    for name in ("data/ingested/a.json", "work/made", "logs/log.jsonl", ".dvc/cache/files/md5/ab/cd", "../remote/files/ef"):
        (project / name).write_text(told)
    (project / "data" / "own.json").write_text(told)  # no output of DVC's
    places = dvc_places(project / "data")
    assert places.remotes == ("far",)
    found = names(project, Searcher(["user-3"]), [project / "logs" / "log.jsonl"])
    assert found == [
        "project/data/ingested/a.json",
        "project/work/made",
        "project/.dvc/cache/files/md5/ab/cd",
        "remote/files/ef",
    ]
    assert names(project, Searcher(["user-4"])) == []


def test_a_cache_elsewhere_is_found(project, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "ab").write_text("of user-3")
    (project / ".dvc" / "config.local").write_text(f"[cache]\n    dir = {tmp_path / 'cache'}\n")
    assert names(project, Searcher(["user-3"])) == ["cache/ab"]


def test_outside_of_a_project_there_are_none_and_damage_is_named(project, tmp_path):
    assert dvc_places(tmp_path) is None
    (project / "dvc.lock").write_text("a: [")
    with pytest.raises(DataError, match=r"dvc\.lock"):
        dvc_places(project)
    (project / "dvc.lock").unlink()
    (project / "data" / "ingested").rmdir()
    (project / ".dvc" / "cache" / "half.gz").write_bytes(b"\x1f\x8b\x08")
    with pytest.raises(DataError, match=r"half\.gz"):
        names(project, Searcher(["user-3"]))
