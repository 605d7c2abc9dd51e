"""A few bytes that stand for gigabytes are refused by name, in bounded memory and time, and cost no other file."""

import gzip
import json
import os
import subprocess
import sys

import pyarrow
import pyarrow.parquet
import pytest

from tracewheel.config import IngestConfig
from tracewheel.core.errors import DataError
from tracewheel.curation.contamination import read_benchmark
from tracewheel.traces.incremental import ingest_new
from tracewheel.traces.ingest import ingest

MIB = 1 << 20
GOOD = json.dumps({"messages": [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "good day"}]}) + "\n"
MOST_MIB = 900
# Ingests a folder, and prints the report and the peak of memory in MiB.
PROGRAM = """
import json, pathlib, re, sys
from tracewheel.config import IngestConfig
from tracewheel.traces.ingest import ingest
report = ingest(IngestConfig(paths=(sys.argv[1],)), pathlib.Path(sys.argv[2]))
peak = re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())  # getrusage counts the parent's, too
print(json.dumps([report["kept"], report["by_reason"], int(peak[1]) // 1024]))
"""


def parquet(path, column, **options):
    pyarrow.parquet.write_table(
        pyarrow.table({"messages": column}), path, compression="zstd", write_statistics=False, **options
    )


def one_long_value(path):
    """Twenty gigabytes of text: one value, a thousand times."""
    column = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 1000, pyarrow.int32()), pyarrow.array([" " * 20 * MIB]))
    parquet(path, column, store_schema=False)


def beginnings_shared(path):
    options = {"use_dictionary": False, "column_encoding": {"messages": "DELTA_BYTE_ARRAY"}}
    parquet(path, pyarrow.array([" " * 4 * MIB + str(number) for number in range(40)]), **options)


def nulls_in_a_row(path):
    count = 30_000_000
    parquet(
        path, pyarrow.ListArray.from_arrays(pyarrow.array([0, count], pyarrow.int32()), pyarrow.nulls(count, pyarrow.int8()))
    )


def null_rows(path):
    parquet(path, pyarrow.nulls(20_000_000, pyarrow.int64()))


def gzipped(block, times):
    def write(path):
        with gzip.open(path, "wb", 6) as file:
            for _ in range(times):
                file.write(block)

    return write


def written(text):
    return lambda path: path.write_text(text)


def sparse(path):
    with path.open("wb") as file:
        file.write(b'{"messages": "')
        file.truncate(512 * MIB)


# File: how it is written, and the reasons of which one has to be in the quarantine; none for a file that holds nothing.
BOMBS = {
    "value.parquet": (one_long_value, {"expands too far"}),
    "delta.parquet": (beginnings_shared, {"expands too far"}),
    "list.parquet": (nulls_in_a_row, {"expands too far"}),
    "rows.parquet": (null_rows, {"too many unreadable"}),
    "zeros.jsonl.gz": (gzipped(bytes(MIB), 200), {"expands too far"}),
    "records.jsonl.gz": (gzipped(b"1\n" * (MIB // 2), 100), {"too many unreadable"}),
    "elements.json.gz": (lambda path: gzipped(b"[" + b"1," * (MIB // 2), 100)(path), {"too many unreadable"}),
    "brackets.json.gz": (gzipped(b"[" * MIB, 200), {"expands too far"}),
    "members.jsonl.gz": (lambda path: path.write_bytes(gzip.compress(b"") * 100_000), set()),
    "zeros.jsonl.zst": (
        lambda path: path.write_bytes(pyarrow.compress(bytes(512 * MIB), codec="zstd", asbytes=True)),
        {"expands too far"},
    ),
    "deep.jsonl": (written('{"messages": ' + "[" * 100_000 + "]" * 100_000 + "}\n"), {"not JSON"}),
    "number.jsonl": (written('{"messages": ' + "1" * 1_000_000 + "}\n"), {"not JSON"}),
    "keys.jsonl": (written("{" + ",".join(['"messages":1'] * 1_000_000) + "}\n"), {"no messages"}),
    "sparse.jsonl": (sparse, set()),
}


def check_refused(name, write, reasons, tmp_path):
    """Ingest a bomb between two good logs, in a process of its own."""
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    out.mkdir()
    write(logs / name)
    (logs / "a.jsonl").write_text(GOOD)
    (logs / "z.jsonl").write_text(GOOD.replace("hello", "good evening"))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(logs), str(out)], capture_output=True, text=True, timeout=120, env={**os.environ}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    kept, by_reason, peak = json.loads(done.stdout)
    assert kept == 2
    assert not reasons or reasons & by_reason.keys()
    assert peak < MOST_MIB


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_in_bounded_memory_and_costs_no_other_file(name, tmp_path):
    check_refused(name, *BOMBS[name], tmp_path)


def entries(out):
    return [json.loads(line) for line in (out / "quarantine.jsonl").read_text().splitlines()]


def test_the_refusal_names_the_file_and_the_setting_and_the_setting_raises_it(tmp_path):
    gzipped(GOOD.replace("hello", "hello " * 200_000).encode(), 70)(tmp_path / "log.jsonl.gz")
    (tmp_path / "out").mkdir()
    config = IngestConfig(paths=(str(tmp_path / "log.jsonl.gz"),), largest_expansion=1)
    report = ingest(config, tmp_path / "out")
    *_, entry = entries(tmp_path / "out")
    assert (report["kept"], entry["reason"], entry["file"]) == (1, "expands too far", "log.jsonl.gz")
    assert "ingest.largest_expansion" in entry["detail"]
    report = ingest(config.model_copy(update={"largest_expansion": 2_000}), tmp_path / "out")
    assert (report["read"], report["quarantined"]) == (70, 0)


def test_a_file_of_rubbish_is_left_after_so_many_records_and_what_is_appended_is_read(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text("[1]\n" * 1_000)
    config = IngestConfig(paths=(str(log),), most_unreadable=10)
    report = ingest_new(config, tmp_path / "out")
    assert report["by_reason"] == {"not an object": 10, "too many unreadable": 1}
    with log.open("a") as file:
        file.write(GOOD)
    report = ingest_new(config, tmp_path / "out")
    assert report["added"]["by_reason"] == {} and report["added"]["kept"] == 1


def test_a_file_with_more_good_records_than_bad_is_read_to_its_end(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text((GOOD + "[1]\n" + GOOD) * 100)
    (tmp_path / "out").mkdir()
    assert ingest(IngestConfig(paths=(str(log),), most_unreadable=10), tmp_path / "out")["quarantined"] == 100


def test_a_row_that_is_not_utf_8_costs_no_other(tmp_path):
    texts = pyarrow.array([b"good", b"\xff\xfe", b"day"]).cast(pyarrow.binary()).view(pyarrow.string())
    parquet(tmp_path / "log.parquet", texts)
    (tmp_path / "out").mkdir()
    ingest(IngestConfig(paths=(str(tmp_path / "log.parquet"),)), tmp_path / "out")
    assert [(entry["line"], entry["reason"]) for entry in entries(tmp_path / "out")] == [
        (1, "no messages"),
        (2, "Parquet damaged"),
        (3, "no messages"),
    ]


def test_a_benchmark_is_bounded_too(tmp_path):
    one_long_value(tmp_path / "items.parquet")
    with pytest.raises(DataError, match="expands to more than"):
        list(read_benchmark(tmp_path / "items.parquet"))
