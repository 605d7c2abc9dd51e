"""Programs in front of Qwen3's own tokenizer and template, which strips the thinking of turns before the last user."""

import pytest

from tracewheel.chat.renderer import ChatRenderer
from tracewheel.core.forks import rows

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Look.",
            "parameters": {"type": "object", "properties": {"where": {"type": "string"}}, "required": ["where"]},
        },
    }
]
CALL = '<think>\nI should look.\n</think>\n\n<tool_call>\n{"name": "look", "arguments": {"where": "shed"}}\n</tool_call>'
ANSWER = "<think>\nA rake, then.\n</think>\n\nThere is a rake."
USER = {"role": "user", "content": "What is in the shed?"}


@pytest.fixture(scope="module")
def qwen3(real_tokenizer):
    return ChatRenderer(real_tokenizer("qwen3"))


def read_at(found, turn):
    """The ids of the row up to a turn."""
    path = next(path for path in rows(found.forks, len(found.token_ids)) if turn["end"] - 1 in path)
    return [found.token_ids[at] for at in path[: path.index(turn["start"])]]


def conversation(made, *, keep_thinking):
    """A call, its result, an answer, another question."""
    messages = [USER]
    for follow in ({"role": "tool", "content": "a rake"}, {"role": "user", "content": "And else?"}, None):
        message = made.ask(messages, tools=TOOLS)
        assert message["reasoning_content"]
        shown = {name: value for name, value in message.items() if keep_thinking or name != "reasoning_content"}
        if follow and follow["role"] == "tool":
            follow["tool_call_id"] = message["tool_calls"][0]["id"]
        messages = [*messages, shown, follow]
    return made.episode.record()


def test_the_template_rewrites_turns_and_each_row_is_what_it_writes(talk_with, qwen3):
    made = talk_with(qwen3, CALL, ANSWER, ANSWER)
    found = conversation(made, keep_thinking=True)
    assert [(branch["reason"], branch["turns"]) for branch in found.branches] == [("", [0, 1]), ("template", [2])]
    assert found.requests["unmatched"] == 0
    for turn, branch in zip(found.turns, (0, 0, 1), strict=True):
        text = qwen3.decode(read_at(found, turn))
        assert text.count("I should look.") == (branch == 0 and turn is not found.turns[0])
    sampled = [at for turn in found.turns for at in range(turn["start"], turn["end"])]
    assert sampled == [at for at, acted in enumerate(found.action_mask) if acted]


def test_a_program_that_strips_thinking_gets_what_it_sends(talk_with, qwen3):
    """Within one round of tools the template would have kept the thinking; the program did not send it."""
    made = talk_with(qwen3, CALL, ANSWER, ANSWER)
    found = conversation(made, keep_thinking=False)
    assert [branch["reason"] for branch in found.branches] == ["", "thinking_stripped", "thinking_stripped"]
    assert "I should look." not in qwen3.decode(read_at(found, found.turns[1]))
    for branch, reply in zip(found.branches, made.replies, strict=True):
        *before, _ = branch["messages"]
        assert qwen3.decode(list(reply.prompt_ids)) == qwen3.decode(qwen3.prompt_ids(before, TOOLS))
