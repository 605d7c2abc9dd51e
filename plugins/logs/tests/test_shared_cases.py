"""Logs made after those that other readers failed on, read in place where they are; what a plain reading of each finds."""

from pathlib import Path

import pytest

from tests.tracewheel.traces.readers.logged import conversation
from tracewheel.config import IngestConfig, RedactionConfig
from tracewheel.core.types import Trace
from tracewheel.traces.ingest import ingest
from tracewheel.traces.quarantine import Quarantined
from tracewheel.traces.readers.reading import read_traces

CASES = Path(__file__).parents[4] / "shared" / "cases" / "traces"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the shared folder of cases is missing")

ASKED, SAID = ("user", "Which port does the service use?", []), ("assistant", "It uses port 8431.", [])
SYSTEM, SHOWN = ("system", "Be short.", []), ("tool", "listen = 8431", [])


def called(name, arguments, text=""):
    return ("assistant", text, [(name, arguments)])


PATH, FILE = {"path": "a.ini"}, {"file_path": "a.ini"}
NO_RESULT = ("tool", "[The log does not hold the result of this call.]", [])
# Files: the format, and the conversation of its first record.
RIGHT = {
    "f02_claude_tool_reference.jsonl": ("claude_code", [
        ASKED, called("ToolSearch", {"query": "select:Read"}), ("tool", "Read", []),
        called("Read", {"file_path": "/w/a.ini"}), SHOWN, SAID,
    ]),
    "f02b_claude_two_parts.jsonl": ("claude_code", [
        ASKED, called("Task", {"prompt": "find"}), ("tool", "The end.\nagentId: a1", []), SAID,
    ]),
    "f03_qwen_code.jsonl": ("qwen_code", [ASKED, called("read_file", PATH), SHOWN, SAID]),
    "f04_conversations_role_content.json": ("table", [ASKED, SAID]),
    "f05_copilot_cli/events.jsonl": ("copilot_cli", [ASKED, called("view", PATH), SHOWN, SAID]),
    "f06_opencode_export.json": ("opencode", [ASKED, called("read", {"filePath": "a.ini"}), SHOWN, SAID]),
    "f07_cursor.jsonl": ("cursor", [ASKED, called("Read", PATH, "Reading."), NO_RESULT, SAID]),
    "f09_kimi_wire.jsonl": ("kimi", [SYSTEM, ASKED, SAID]),
    "f12_verifiers_results.jsonl": ("table", [SYSTEM, ASKED, called("read_file", PATH), SHOWN, SAID]),
    "f18_langsmith_bulk.jsonl": ("langsmith", [SYSTEM, ASKED, SAID]),
    "f20_anthropic_server_tools.jsonl": ("anthropic", [
        SYSTEM, ("user", "Who won the cup?", []), called("web_search", {"query": "cup winner"}),
        ("tool", "Cup\nhttps://example.org/a", []), ("assistant", "The Reds won.", []),
    ]),
    "f26_codex_exec.jsonl": ("codex_exec", [called("shell", {"command": "cat a.ini"}), SHOWN, SAID]),
    "f27_claude_stream_json.jsonl": ("claude_code", [ASKED, called("Read", FILE), SHOWN, SAID]),
    "b06_claude_growing_message.jsonl": ("claude_code", [
        ("user", "List the files.", []), called("Bash", {"command": "ls"}, "Let me look."),
        ("tool", "a.txt", []), ("assistant", "One file: a.txt.", []),
    ]),
}  # fmt: skip


def read(name):
    return list(read_traces({name: CASES / name}))


@pytest.mark.parametrize("name", RIGHT)
def test_a_case_is_read_as_a_plain_reading_has_it(name):
    (trace,) = read(name)
    format, said = RIGHT[name]
    assert isinstance(trace, Trace), trace
    assert (trace.format, conversation(trace)) == (format, said)


def test_rollouts_of_nemo_gym_have_their_prompt_and_the_tools_that_were_offered():
    traces = read("f01_nemo_gym_rollouts.jsonl")
    for number, trace in enumerate(traces):
        asked = ("user", f"Which port does the service use? Case {number}.", [])
        assert conversation(trace) == [SYSTEM, asked, called("read_file", PATH), SHOWN, SAID]
        assert (trace.outcome, trace.tools_inferred, trace.info["rollout"]) == (1.0, False, 0)
    assert [trace.messages[0]["content"] for trace in read("f01b_nemo_same_answer.jsonl")] == [
        "List the parents of a.",
        "List the parents of b.",
    ]


def test_two_prompts_with_one_answer_are_two_traces(tmp_path):
    paths = (str(CASES / "f01b_nemo_same_answer.jsonl"),)
    report = ingest(IngestConfig(paths=paths, redaction=RedactionConfig(enabled=False)), tmp_path / "out")
    assert (report["kept"], report["duplicates"]) == (2, 0)


@pytest.mark.parametrize(
    ("name", "reason", "said"),
    [
        ("b01_langfuse_no_io.json", "content was not read", "1 tools ran, 0 calls"),
        ("f31_calls_no_results.jsonl", "call without a reply", "'c0' has none"),
    ],
)
def test_a_log_that_has_lost_calls_or_results_is_refused_with_the_true_reason(name, reason, said):
    (item,) = read(name)
    assert isinstance(item, Quarantined)
    assert item.reason == reason and said in item.detail


def test_the_three_files_of_a_bulk_export_are_one_trace_with_its_score():
    folder = CASES / "f17_langfuse_blob"
    (trace,) = read_traces({file.name: file for file in sorted(folder.iterdir())})
    assert conversation(trace) == [SYSTEM, ASKED, called("read_file", PATH), SHOWN, SAID]
    assert (trace.outcome, trace.session, trace.user) == (1.0, "s1", "u1")


@pytest.mark.parametrize("name", ["b10_otel_cut_attribute.json", "b13_litellm_cut.jsonl"])
def test_a_prompt_that_an_exporter_cut_is_counted(name, tmp_path):
    report = ingest(IngestConfig(paths=(str(CASES / name),), redaction=RedactionConfig(enabled=False)), tmp_path / "out")
    assert (report["kept"], report["cut_prompts"]) == (1, 1)
