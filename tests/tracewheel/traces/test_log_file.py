"""From bytes to pieces: layouts, places, compression, and what damage costs."""

import contextlib
import gzip
import io
import json

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.traces import json_cutter
from tracewheel.traces.json_cutter import JsonCutter
from tracewheel.traces.log_file import LogFile, layout_of

RECORDS = [{"id": number, "text": 'a "quoted" {bracket] \\ line\nend', "list": [1, {"deep": []}]} for number in range(5)]


def cut(data, **options):
    return list(JsonCutter(io.BytesIO(data).read, **options).pieces())


def pieces(tmp_path, data, name="log.json", **options):
    path = tmp_path / name
    path.write_bytes(data)
    return list(LogFile(path, **options).pieces())


def values(found):
    return [json.loads(piece.raw) for piece in found]


def sound_ids(found):
    """The ids of the records that can be parsed."""
    ids = []
    for piece in found:
        with contextlib.suppress(ValueError):
            ids.append(json.loads(piece.raw)["id"])
    return ids


LAYOUTS = {
    "lines": ("lines", lambda: b"\n".join(json.dumps(record).encode() for record in RECORDS) + b"\n"),
    "lines without an end": ("lines", lambda: b"\r\n".join(json.dumps(record).encode() for record in RECORDS)),
    "a list in one line": ("documents", lambda: json.dumps(RECORDS).encode()),
    "a written-out list": ("documents", lambda: json.dumps(RECORDS, indent=2).encode()),
    "a list with an element a line": (
        "documents",
        lambda: b"[\n" + b",\n".join(json.dumps(record).encode() for record in RECORDS) + b"\n]\n",
    ),
    "written-out objects": ("documents", lambda: b"\n".join(json.dumps(record, indent=4).encode() for record in RECORDS)),
}


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["", "with a byte order mark"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_gives_the_records_with_their_places(tmp_path, name, mark):
    layout, make = LAYOUTS[name]
    data = mark + make()
    found = pieces(tmp_path, data)
    assert LogFile(tmp_path / "log.json").layout == layout
    assert values(found) == RECORDS
    for piece in found:
        begins = data.index(piece.raw)
        assert piece.line == data[:begins].count(b"\n") + 1
        assert piece.offset == (begins if begins > len(mark) or layout == "documents" else 0)
        assert bool(piece.document) == ("list" in name)


@pytest.mark.parametrize("name", LAYOUTS)
def test_compressed_files_are_read(tmp_path, name):
    data = LAYOUTS[name][1]()
    (tmp_path / "log.json.gz").write_bytes(gzip.compress(data[:100]) + gzip.compress(data[100:]))
    with pyarrow.output_stream(str(tmp_path / "log.json.zst"), compression="zstd") as stream:
        stream.write(data)
    for suffix in ("gz", "zst"):
        assert values(LogFile(tmp_path / f"log.json.{suffix}").pieces()) == RECORDS


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_truncated_archive_gives_its_whole_records_and_reports_damage(tmp_path, suffix):
    import random

    noise = random.Random(0)
    lines = b"".join(json.dumps({"id": n, "noise": noise.randbytes(400).hex()}).encode() + b"\n" for n in range(2000))
    path = tmp_path / f"log.jsonl.{suffix}"
    with pyarrow.output_stream(str(path), compression={"gz": "gzip", "zst": "zstd"}[suffix]) as stream:
        stream.write(lines)
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 3 // 4])
    *found, last = LogFile(path).pieces()
    assert last.damage == "compression damaged"
    whole = [piece for piece in found if not piece.is_last]
    assert [json.loads(piece.raw)["id"] for piece in whole] == list(range(len(whole)))
    assert len(whole) > 1000


def test_a_file_that_is_no_archive_is_reported_as_damaged(tmp_path):
    for name in ("a.jsonl.gz", "a.jsonl.zst"):
        assert [piece.damage for piece in pieces(tmp_path, b"no archive", name)] == ["compression damaged"]


ELEMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(st.sampled_from('a"\\{}[],:\n é'), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.sampled_from('a"\\{}[]\n'), max_size=3), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(st.lists(ELEMENTS, max_size=6), st.sampled_from([None, 0, 1, 4]), st.sampled_from([1, 5, 64, 1 << 20]))
def test_lists_are_cut_into_elements_in_any_format_and_chunk_size(elements, indent, chunk):
    data = json.dumps(elements, indent=indent, ensure_ascii=False).encode()
    usual = json_cutter.CHUNK
    json_cutter.CHUNK = chunk
    try:
        found = cut(data)
    finally:
        json_cutter.CHUNK = usual
    assert values(found) == elements
    for piece in found:
        assert data[piece.offset : piece.offset + len(piece.raw)] == piece.raw
        assert piece.line == data[: piece.offset].count(b"\n") + 1


@pytest.mark.parametrize("indent", [1, 2, 4])
@pytest.mark.parametrize("damage", ['"id": "1', '"id": [1', '"id": {1', '"id": 1]', '"id": }'])
def test_a_damaged_element_of_an_indented_list_costs_no_other(indent, damage):
    found = cut(json.dumps(RECORDS, indent=indent).replace('"id": 1', damage).encode())
    assert sound_ids(found) == [0, 2, 3, 4]
    assert len(found) <= 6


@pytest.mark.parametrize("damage", ['"id": "1', '"id": [1', '"id": }'])
def test_a_damaged_element_on_a_line_of_its_own_costs_no_other(damage):
    lines = [json.dumps(record).replace('"id": 1,', f"{damage},") for record in RECORDS]
    found = cut(("[\n" + ",\n".join(lines) + "\n]").encode())
    assert sound_ids(found) == [0, 2, 3, 4]


@pytest.mark.parametrize("damage", ['"id": [1', '"id": {1', '"id": 1]', '"id": }', '"id": "1', '"id": \n"1'])
def test_a_damaged_element_of_a_list_in_one_line_costs_no_other(damage):
    """The next is known by the key that the first begins with."""
    found = cut(json.dumps(RECORDS).replace('"id": 1', damage).encode())
    assert sound_ids(found) == [0, 2, 3, 4]
    assert len(found) <= 6


@pytest.mark.parametrize("end", range(5, 60, 5))
def test_a_truncated_list_gives_its_whole_elements_and_a_truncated_rest(end):
    data = json.dumps(RECORDS, indent=1).encode()[:-end]
    *found, last = cut(data)
    assert values(found) == RECORDS[: len(found)]
    assert len(found) >= 4
    assert (last.damage, last.is_last) == ("truncated", True)


@given(st.binary(max_size=300) | st.text(st.sampled_from('[]{}",:\\\n a1'), max_size=60).map(str.encode))
def test_arbitrary_bytes_never_crash_the_cutter_and_none_are_lost(data):
    left = bytearray(b"[" + data)
    for piece in cut(bytes(left)):
        begins, ends = piece.offset, piece.offset + len(piece.raw)
        assert bytes(left[begins:ends]) == piece.raw
        left[begins:ends] = b" " * len(piece.raw)
    # Outside the pieces are only space, commas between elements, and the brackets of lists.
    assert not left.translate(None, b" \t\r\n\x0b\x0c,[]")


def test_a_too_large_record_keeps_its_beginning_only(tmp_path, monkeypatch):
    monkeypatch.setattr(json_cutter, "CHUNK", 64)
    huge = {"id": "huge", "text": "x" * 5000}
    lines = b"\n".join(json.dumps(record).encode() for record in [RECORDS[0], huge, RECORDS[1]])
    listed = json.dumps([RECORDS[0], huge, RECORDS[1]]).encode()
    for data in (lines, listed):
        first, middle, last = pieces(tmp_path, data, largest=1000)
        assert values([first, last]) == RECORDS[:2]
        assert middle.damage == "too large"
        assert middle.raw.startswith(b'{"id": "huge"')


def test_reading_continues_where_it_ended(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"id": 1}\n{"id": 2}\n{"id": ')
    source = LogFile(path)
    *found, unfinished = source.pieces()
    assert values(found) == [{"id": 1}, {"id": 2}]
    assert (unfinished.is_last, source.offset, source.line) == (True, 20, 3)
    with path.open("ab") as file:
        file.write(b'3}\n{"id": 4}')
    later = LogFile(path, (source.offset, source.line))
    found = list(later.pieces())
    assert values(found) == [{"id": 3}, {"id": 4}]
    assert [piece.line for piece in found] == [3, 4]
    later.take_last_line()
    assert later.offset == path.stat().st_size


@pytest.mark.parametrize(
    ("head", "layout"),
    [
        (b"", "lines"),
        (b"no JSON at all", "lines"),
        (b'{"a": 1}', "lines"),
        (b'{"a": [\n{"b": 1}\n', "lines"),
        (b'{"a": "cut o\n{"b": 1}\n{"b": 2}', "lines"),
        (b'{\n  "a": 1\n}', "documents"),
        (b'{\n  "a": [\n    {"b": 1}\n', "documents"),
        (b'{"a": [\n{"b": 1}\n]}', "documents"),
        (b"[]", "documents"),
        (b'[]\n{"a": 1}', "lines"),
        (b'[{"a": 1},\n{"a": 2}]', "documents"),
        (b"[\n", "documents"),
    ],
)
def test_layout_is_decided_by_the_beginning(head, layout):
    assert layout_of(head, whole=True) == layout


ELEMENTS = st.recursive(
    st.integers(0, 9) | st.sampled_from(["", "},{", '"', ', {"id": 1}']),
    lambda inner: st.lists(inner, max_size=3) | st.fixed_dictionaries({"id": inner}, optional={"list": inner}),
    max_leaves=12,
)


@given(st.lists(ELEMENTS, min_size=1, max_size=6), st.sampled_from([None, 0, 2]), st.sampled_from([(", ", ": "), (",", ":")]))
def test_elements_with_similar_inner_objects_are_not_split(elements, indent, separators):
    """What begins as an element does may be within one, and what lies between two beginnings may be several values."""
    assert values(cut(json.dumps(elements, indent=indent, separators=separators).encode())) == elements
