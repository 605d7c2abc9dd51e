"""Traces of the web that other programs wrote."""

import json
from pathlib import Path

import pytest

from tests.tracewheel.traces.readers.logged import conversation, read

SAMPLES = Path(__file__).parent / "samples"
PICTURE = "[image, not in the log, sha256 "


def steps(*said, asked=None):
    found = []
    for number, (response, action) in enumerate(said, start=1):
        name = f"step_{number}_20260609@122718105648.png"
        last = number == len(said)
        found.append(
            {
                "step_num": number, "action_timestamp": "20260609@122718", "action": action, "response": response,
                "reward": float(last), "done": last, "info": {}, "screenshot_file": name,
            }
            | ({"instruction": asked} if asked else {})
        )  # fmt: skip
    return found


def test_playwrights_own_trace():
    (trace,) = read(*map(json.loads, (SAMPLES / "trace.trace").read_text().splitlines()))
    assert trace.format == "playwright_trace" and trace.outcome is None
    said = conversation(trace)
    assert [calls[0][0] for role, _, calls in said if role == "assistant"] == [
        "newPage", "setContent", "fill", "click", "title", "click"
    ]  # fmt: skip
    assert ("fill", "Ada") in [(call[0], call[1].get("value")) for _, _, calls in said for call in calls]
    assert [text for role, text, _ in said if role == "tool"][-2:] == ['{"value": "Ada"}', "error: Timeout 300ms exceeded."]


def test_osworlds_steps_with_texts_and_objects():
    lines = steps(
        ("I open the menu.", "pyautogui.click(90, 79)"),
        ({"raw_response": "It is done.", "usage": {"input_tokens": 3}}, {"action_type": "DONE", "raw_response": "x"}),
        asked="Install the font.",
    )
    (trace,) = read(*lines)
    said = conversation(trace)
    assert trace.format == "osworld" and trace.outcome == 1.0
    assert said[:2] == [
        ("user", "Install the font.", []),
        ("assistant", "I open the menu.", [("computer", {"action": "pyautogui.click(90, 79)"})]),
    ]
    assert said[2][1].startswith(PICTURE)
    assert said[3] == ("assistant", "It is done.", [("computer", {"action": {"action_type": "DONE"}})])


def test_several_actions_of_one_response_are_one_saying_and_no_reward_is_no_zero():
    lines = steps(("Two clicks.", "pyautogui.click(1, 2)"), ("Two clicks.", "pyautogui.click(3, 4)"))
    lines[1] |= {"step_num": 1, "reward": 0}
    (trace,) = read(*lines)
    assert [text for role, text, _ in conversation(trace) if role == "assistant"] == ["Two clicks.", ""]
    assert trace.outcome is None


@pytest.mark.parametrize("kind", ["computer_20250124", "computer_20251124"])
def test_claudes_computer_use_is_anthropics_format_with_pictures_as_placeholders(kind):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    call = {"type": "tool_use", "id": "t1", "name": "computer", "input": {"action": "left_click", "coordinate": [3, 4]}}
    record = {
        "model": "claude", "max_tokens": 9,
        "tools": [{"type": kind, "name": "computer", "display_width_px": 1024, "display_height_px": 768}],
        "messages": [
            {"role": "user", "content": "Open the menu."},
            {"role": "assistant", "content": [{"type": "text", "text": "I click."}, call]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [image]}]},
            {"role": "assistant", "content": "It is open."},
        ],
    }  # fmt: skip
    (trace,) = read(record)
    said = conversation(trace)
    assert trace.format == "anthropic"
    assert said[1] == ("assistant", "I click.", [("computer", {"action": "left_click", "coordinate": [3, 4]})])
    assert said[2][1].startswith("[image, image/png, 8 bytes")
