"""Data exports, streams and results: branches, files that are no logs, rows without questions, and images of SDKs."""

import copy
import json
from hashlib import sha256
from pathlib import Path

import pytest

from tests.tracewheel.traces.readers.logged import STORY, conversation, read
from tracewheel.core.endings import prompt_is_cut
from tracewheel.traces.quarantine import Quarantined

SAMPLES = Path(__file__).with_name("samples")
PIXEL = "iVBORw0KGgo="
MARK = f"[image, 8 bytes, sha256 {sha256(bytes.fromhex('89504e470d0a1a0a')).hexdigest()[:16]}]"


def sample(name):
    return json.loads((SAMPLES / f"{name}.json").read_text())


def texts(trace):
    return [message["content"] for message in trace.messages]


def test_an_edited_message_of_an_export_leaves_its_first_version_out():
    export = sample("claude_export")
    asked, answered = export["chat_messages"]
    edited = copy.deepcopy(asked) | {"uuid": "m3", "text": "And Oslo?", "content": [{"type": "text", "text": "And Oslo?"}]}
    export["chat_messages"] += [edited, {**answered, "uuid": "m4", "parent_message_uuid": "m3", "content": [], "text": "Rain."}]
    (trace,) = read(export)
    assert texts(trace) == ["And Oslo?", "Rain."]
    assert trace.info["left_out"] == {"messages of other branches": 2}


def test_conversations_of_one_export_are_traces_and_one_with_a_file_is_refused():
    export = sample("grok_export")
    other = copy.deepcopy(export["conversations"][0])
    other["responses"][0]["response"]["file_attachments"] = ["f1"]
    export["conversations"].append(other)
    first, second = read(export)
    assert conversation(first) == [STORY[0], STORY[3]]
    assert isinstance(second, Quarantined) and second.reason == "message unreadable"


def test_a_prompt_of_promptfoo_may_be_messages_and_its_score_is_no_outcome():
    results = sample("promptfoo")
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather in Rome?"}]
    results["results"]["results"][0]["prompt"]["raw"] = json.dumps(said)
    (trace,) = read(results)
    assert [message["role"] for message in trace.messages] == ["system", "user", "assistant"]
    assert trace.outcome is None and trace.info["promptfoo_score"] == 1


@pytest.mark.parametrize(
    ("record", "advice"),
    [
        ({"ts": 1, "type": "say", "say": "text", "text": "Go."}, "api_conversation_history.json"),
        ({"id": "s", "task_id": "1", "mode": "full_duplex", "ticks": [{}]}, "in text"),
        (
            {"id": "x", "object": "chat.completion", "choices": [{"message": {"role": "assistant", "content": "Hi."}}]},
            "request",
        ),
        ({"id": "simple_0", "result": [{"f": "{}"}], "latency": 1, "input_token_count": 2}, "inference_log"),
    ],
)
def test_what_holds_no_conversation_is_refused_with_what_to_ingest_instead(record, advice):
    (refused,) = read(record)
    assert isinstance(refused, Quarantined) and advice in refused.detail


def test_a_stream_takes_the_prompts_of_the_client_not_their_echo_and_one_session_only():
    echo, *lines = sample("acp")
    prompt = {"jsonrpc": "2.0", "id": 1, "method": "session/prompt"}
    prompt["params"] = {"sessionId": "conv", "prompt": [{"type": "text", "text": "Weather in Rome?"}]}
    (trace,) = read(prompt, echo, *lines)
    assert conversation(trace) == STORY
    lines[-1]["params"]["sessionId"] = "other"
    (refused,) = read(prompt, *lines)
    assert "several sessions" in refused.detail


def test_instructions_have_their_input_their_history_and_their_system_prompt():
    row = {"instruction": "Translate.", "input": "Hola", "output": "Hello", "system": "Be exact.", "history": [["Hi", "Hey"]]}
    (trace,) = read(row)
    assert texts(trace) == ["Be exact.", "Hi", "Hey", "Translate.\nHola", "Hello"]
    (refused,) = read({**row, "history": ["Hi"]})
    assert refused.reason == "message unreadable"


def test_a_preference_ends_with_the_chosen_answer():
    row = {"conversations": [{"from": "human", "value": "Hi"}], "chosen": {"from": "gpt", "value": "Hello."}}
    (trace,) = read({**row, "rejected": {"from": "gpt", "value": "No."}})
    assert texts(trace) == ["Hi", "Hello."] and "chosen" not in trace.info


def test_a_result_of_iflow_is_what_its_model_was_shown():
    lines = [line for line in sample("claude_code") if line["type"] in ("user", "assistant")]
    held = next(block for line in lines for block in line["message"]["content"] if "tool_use_id" in block)
    shown = {"functionResponse": {"id": "c1", "name": "weather", "response": {"output": "sunny"}}}
    held["content"] = {"callId": "c1", "responseParts": shown, "resultDisplay": "The sun"}
    (trace,) = read(*lines)
    assert conversation(trace)[2] == STORY[2]


def test_images_of_three_sdks_are_placeholders_and_no_task_is_made_of_them():
    image = {"kind": "binary", "media_type": "image/png", "data": PIXEL}
    messages = [{"kind": "request", "parts": [{"part_kind": "user-prompt", "content": ["See:", image]}]}]
    messages += [{"kind": "response", "parts": [{"part_kind": "text", "content": "A dot."}]}]
    step = {"step_number": 1, "timing": {}, "observations": None, "model_output_message": {"content": "A dot."}}
    said = [{"type": "MultiModalMessage", "source": "user", "content": ["See:", {"data": PIXEL}]}]
    said += [{"type": "TextMessage", "source": "agent", "content": "A dot.", "models_usage": {"prompt_tokens": 1}}]
    for values in (said, [{"task": "See:", "task_images": [PIXEL]}, step], messages):
        (trace,) = read(*values, document=1)
        assert texts(trace) == [
            "See:\n" + MARK.replace("image, 8", "image, image/png, 8" if values is messages else "image, 8"),
            "A dot.",
        ]
        assert prompt_is_cut(trace.messages)
    assert prompt_is_cut([{"role": "user", "content": "<image>What is this?"}])
    assert not prompt_is_cut([{"role": "user", "content": "Where does <image> go in SVG?"}])
