"""Decontamination: benchmark items are found in traces, with file and line; chance words are not."""

import json

import pandas
import pytest

from tracewheel.config import DecontaminationConfig
from tracewheel.core.errors import DataError
from tracewheel.curation.contamination import BenchmarkIndex, Overlap, read_benchmark

ITEM = (
    "A farmer has seventeen sheep and all but nine of them run away during the storm, so he buys four more at the market "
    "on Tuesday and sells two on Friday; how many sheep does the farmer have in the end?"
)
OTHER = (
    "Write a function that returns the longest palindromic substring of a given string without using any extra memory at all."
)
RENUMBERED = ITEM.replace("seventeen", "21").replace("nine", "12")


def traces(**said):
    rows = [{"id": name, "messages": json.dumps([{"role": "user", "content": text}])} for name, text in said.items()]
    return pandas.DataFrame(rows)


def overlaps(frame, config):
    return pandas.DataFrame(BenchmarkIndex.read(config).overlaps(frame), columns=list(Overlap._fields))


def benchmark(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("b.jsonl", json.dumps({"question": OTHER}) + "\n\n" + json.dumps({"question": ITEM}) + "\n", 3),
        ("b.json", json.dumps([{"q": OTHER}, {"q": ITEM, "answer": "11"}], indent=1), 5),
        ("b.txt", f"{OTHER}\n{ITEM}\n", 2),
    ],
)
def test_an_item_is_found_with_file_and_line(tmp_path, name, text, line):
    config = DecontaminationConfig(benchmarks=(benchmark(tmp_path, name, text),))
    frame = traces(
        bad=f"Please solve this for me: {ITEM.upper()} Thanks!", good="How many sheep does a farmer have on average?"
    )
    found = overlaps(frame, config)
    assert set(zip(found["trace_id"], found["file"], found["line"], strict=True)) == {("bad", name, line)}
    by_words = found[found["kind"] == "words"].iloc[0]
    assert by_words["share"] == 1.0
    assert "seventeen sheep and all but nine" in by_words["text"]


def test_parquet_items_count_by_rows(tmp_path):
    pandas.DataFrame({"prompt": [OTHER, ITEM], "n": [1, 2]}).to_parquet(tmp_path / "b.parquet")
    found = overlaps(traces(bad=ITEM), DecontaminationConfig(benchmarks=(str(tmp_path / "b.parquet"),)))
    assert set(found["line"]) == {2}
    assert set(found["kind"]) == {"words", "similar"}


def test_a_renumbered_item_is_found_by_similarity(tmp_path):
    numbers = ITEM.replace("seventeen", "17").replace("nine", "9")
    config = DecontaminationConfig(benchmarks=(benchmark(tmp_path, "b.txt", numbers),), words=30, share=1.0)
    found = overlaps(traces(copy=RENUMBERED, other=OTHER), config)
    assert found[["trace_id", "kind", "line"]].values.tolist() == [["copy", "similar", 1]]


def test_part_of_an_item_counts_by_its_share(tmp_path):
    path = benchmark(tmp_path, "b.txt", ITEM)
    half = " ".join(ITEM.split()[:20])
    shares = [overlaps(traces(part=half), DecontaminationConfig(benchmarks=(path,), share=share)) for share in (0.2, 0.25, 0.6)]
    assert [len(found) for found in shares] == [1, 1, 0]
    words = len(ITEM.replace(",", "").replace(";", "").split())
    assert shares[0]["share"].iloc[0] == pytest.approx((20 - 12) / (words - 12))


def test_short_items_are_matched_whole_also_in_replies_and_arguments(tmp_path):
    config = DecontaminationConfig(benchmarks=(benchmark(tmp_path, "b.txt", "What is the capital of Burundi?\nYes?\n"),))
    call = {"id": "c", "function": {"name": "ask", "arguments": json.dumps({"q": "what is the CAPITAL of burundi"})}}
    messages = [{"role": "user", "content": "Yes?"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    frame = pandas.DataFrame([{"id": "t", "messages": json.dumps(messages)}])
    found = overlaps(frame, config)
    assert found[["trace_id", "kind", "line"]].values.tolist() == [["t", "words", 1]]


def test_runs_that_many_items_share_are_ignored(tmp_path):
    preamble = "You are a helpful assistant that answers each of the following questions step by step and with great care"
    lines = [f"{preamble} number {chr(97 + n) * 4} about {chr(98 + n) * 6} and {chr(99 + n) * 5}" for n in range(12)]
    path = benchmark(tmp_path, "b.txt", "\n".join(lines))
    frame = traces(innocent=f"{preamble} concerning my garden, where the tomatoes do not grow as they did", guilty=lines[3])
    found = overlaps(frame, DecontaminationConfig(benchmarks=(path,), share=0.1, similar=0.99))
    assert set(found["trace_id"]) == {"guilty"}
    assert set(found["line"]) == {4}
    more = overlaps(frame, DecontaminationConfig(benchmarks=(path,), share=0.1, similar=0.99, common=12))
    assert set(more["trace_id"]) == {"innocent", "guilty"}


def test_without_benchmarks_nothing_is_found():
    assert overlaps(traces(a=ITEM), DecontaminationConfig()).empty


@pytest.mark.parametrize(("name", "text"), [("b.json", "[{"), ("b.jsonl", "{"), ("b.parquet", "no parquet")])
def test_an_unreadable_file_is_an_error_with_its_name(tmp_path, name, text):
    path = benchmark(tmp_path, name, text)
    with pytest.raises(DataError, match=name):
        overlaps(traces(a=ITEM), DecontaminationConfig(benchmarks=(path,)))
    with pytest.raises(DataError, match="no such benchmark file"):
        overlaps(traces(), DecontaminationConfig(benchmarks=(path + "x",)))


def test_elements_of_a_list_have_the_lines_where_they_begin(tmp_path):
    path = benchmark(tmp_path, "b.json", '\n[\n  "one two"\n  ,\n\n {"a": ["x\\ny",\n "z"]}, "last"]\n')
    items = [(item.line, item.texts) for item in read_benchmark(tmp_path / "b.json")]
    assert path
    assert items == [(3, ("one two",)), (6, ("x\ny", "z")), (7, ("last",))]
