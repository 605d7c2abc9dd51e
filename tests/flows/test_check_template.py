"""`tracewheel stage check-template`, and the check at the start of a run."""

import json
import shutil

import pytest

from tracewheel_projects.demo.chat_template import CHAT_TEMPLATE

NO_TOOLS = (
    "{% for message in messages %}<|im_start|>{{ message.role + '\n' + message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# It strips what a policy said from all turns but the last, as templates strip thinking.
FORGETTING = CHAT_TEMPLATE.replace("message.content or ''", "(message.content or '') if loop.last else ''")


def test_a_base_that_can_be_trained(run, base, tmp_path):
    page = tmp_path / "tokens.md"
    code, out, _ = run("stage", "check-template", base, "--json", "--show", page)
    found = json.loads(out)
    assert code == 0
    assert (found["trainable"], found["reasons"], found["forged"]) == (True, [], [])
    assert (found["tool_format"], found["end_of_turn"], found["calls_round_trip"]) == ("hermes", ["<|im_end|>"], True)
    assert all(each["breaks"] == [] and each["tokens"] == each["single_row"] for each in found["splitting"])
    rows = [line.split(" | ") for line in page.read_text().splitlines()[2:]]
    sampled = [tokens for _, mask, tokens in rows if mask == "1"]
    assert sum("<tool_call>" in tokens for tokens in sampled) >= 3
    assert not any("<tool_response>" in tokens for tokens in sampled)


def test_a_template_without_tools_is_refused_with_what_to_do(run, base, tmp_path):
    (tmp_path / "own.jinja").write_text(NO_TOOLS)
    code, out, err = run("stage", "check-template", base, "--chat-template", tmp_path / "own.jinja", "--json")
    found = json.loads(out)
    assert (code, found["trainable"], found["trainable_without_tools"]) == (2, False, True)
    assert not found["renders"]["tools"] and not found["renders"]["calls"]
    assert "does not render tool calls" in err and "policy.chat_template" in err


def test_a_template_that_rewrites_says_where_and_at_what_cost(run, base, tmp_path):
    (tmp_path / "own.jinja").write_text(FORGETTING)
    code, out, _ = run("stage", "check-template", base, "--chat-template", tmp_path / "own.jinja", "--json")
    text = next(each for each in json.loads(out)["splitting"] if each["conversation"] == "text")
    assert code == 0
    assert text["breaks"] == [2]
    assert (
        "the template rewrites before turn"
        in run("stage", "check-template", base, "--chat-template", tmp_path / "own.jinja")[1]
    )


@pytest.mark.parametrize("template", ["{{ messages[0].content", "{{ raise_exception('no') }}"])
def test_a_broken_template_is_a_finding(run, base, tmp_path, template):
    (tmp_path / "own.jinja").write_text(template)
    code, out, err = run("stage", "check-template", base, "--chat-template", tmp_path / "own.jinja", "--json")
    assert (code, json.loads(out)["trainable"]) == (2, False)
    assert "Traceback" not in err


def test_a_template_that_never_ends_a_turn_is_refused(run, base, tmp_path):
    (tmp_path / "own.jinja").write_text(CHAT_TEMPLATE.replace("<|im_end|>", ""))
    code, _, err = run("stage", "check-template", base, "--chat-template", tmp_path / "own.jinja")
    assert code == 2
    assert "does not end an assistant turn with" in err and "eos_token" in err


def test_a_run_on_such_a_base_does_not_start(run, base, profile, tmp_path):
    folder = tmp_path / "base"
    shutil.copytree(base, folder)
    (folder / "chat_template.jinja").write_text(NO_TOOLS)
    settings = ("--set", f"policy.base={folder}", "--run-dir", tmp_path / "runs")
    code, _, err = run("retrain", profile, *settings)
    assert code == 2
    assert "cannot be trained" in err and "policy.chat_template" in err and "Traceback" not in err
    assert not list(tmp_path.glob("runs/*/lineage.json"))
