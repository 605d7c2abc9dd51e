"""Archives of Inspect that expand too far, or are broken."""

import zipfile

import pytest

from tests.tracewheel.traces.test_bombs import GOOD, MIB, check_refused
from tracewheel.config import IngestConfig
from tracewheel.traces.ingest import ingest


def archive(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("header.json", '{"eval": {"task": "t", "model": "m"}}')
        for number in range(20):
            file.writestr(f"samples/{number}.json", b" " * 60 * MIB)


def test_an_archive_that_expands_too_far_is_refused(tmp_path):
    check_refused("archive.eval", archive, {"expands too far"}, tmp_path)


@pytest.mark.parametrize("header", [b"[1]", b"{", b'{"eval": 1}'])
def test_a_broken_archive_costs_no_other_file(header, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.eval", "w") as file:
        file.writestr("header.json", header)
        file.writestr("samples/1.json", b"{")
    (tmp_path / "b.eval").write_bytes((tmp_path / "a.eval").read_bytes().replace(b"header.json", b"header.jsox", 1))
    (tmp_path / "c.jsonl").write_text(GOOD)
    (tmp_path / "out").mkdir()
    assert ingest(IngestConfig(paths=tuple(map(str, tmp_path.glob("*.*")))), tmp_path / "out")["kept"] == 1
