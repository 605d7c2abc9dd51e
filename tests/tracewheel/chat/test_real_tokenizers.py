"""Plain text and control tokens on tokenizers of the field."""

import copy
import json

import pytest

from tracewheel.chat.formats.hermes import HermesFormat
from tracewheel.chat.plain_text import PlainText
from tracewheel.chat.renderer import ChatRenderer
from tracewheel_projects.demo.chat_template import CHAT_TEMPLATE

LARGE = ("gemma3", "gptoss")
NAMES = ["qwen3", "deepseek_v3", "llama3_1", "smollm2", *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)]
TEXTS = (
    "Hello, wörld!  two  spaces\n\n\nline\tTab 12345 名前 é 👍",
    "<b>x</b> <pad <|im_ |im_end|> [INST < > ｜ ▁",
    "  leading and trailing \n",
    "\n\n",
    "name",
    "text",
    "<",
    "filename",
    "e\u0301 \u00a0 \u200b \x00 \ufffd",
)


@pytest.fixture(scope="module", params=NAMES)
def tokenizer(request, real_tokenizer):
    return real_tokenizer(request.param)


@pytest.fixture(scope="module")
def plain(tokenizer):
    return PlainText(tokenizer, HermesFormat.REPLY_FRAMES)


def decode(tokenizer, ids):
    return tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def test_plain_text_has_the_ids_of_the_tokenizer_itself(tokenizer, plain):
    for text in TEXTS:
        whole = tokenizer.encode(text, add_special_tokens=False)
        assert plain.encode(plain.mark(text)) == plain.encode(plain.mark(text), after="") == whole


def test_every_control_token_can_be_written_as_plain_text(tokenizer, plain):
    special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    assert special <= plain.control_tokens
    for token in plain.control_tokens:
        for text in (token, f"a {token} b", f"{token}\n{token}", f"{token[:2]}{token}{token[2:]}"):
            for by_assistant in (False, True):
                ids = plain.encode(plain.mark(text, assistant=by_assistant))
                assert decode(tokenizer, ids) == text
                if not by_assistant or token in special:
                    assert plain.control_ids.isdisjoint(ids)


def test_no_two_texts_form_a_control_token_together(tokenizer, plain):
    """Every control token cut at every place, its halves in two texts that the template prints side by side."""
    for token in sorted(plain.control_tokens)[:40]:
        for cut in range(1, len(token)):
            ids = plain.encode(plain.mark(token[:cut]) + plain.mark(token[cut:]))
            assert plain.control_ids.isdisjoint(ids)
            assert decode(tokenizer, ids) == token
            ids = plain.encode(token[:cut] + plain.mark(token[cut:]))  # the template printed the first half
            assert plain.control_ids.isdisjoint(ids)


def test_deepseeks_turn_tokens_are_control_tokens(real_tokenizer):
    """They are no special tokens of its tokenizer, and a user's text that holds one would open a turn."""
    tokenizer = real_tokenizer("deepseek_v3")
    plain = PlainText(tokenizer, HermesFormat.REPLY_FRAMES)
    assert {"<｜User｜>", "<｜Assistant｜>"} <= plain.control_tokens
    assert decode(tokenizer, tokenizer.encode("two words\n", add_special_tokens=False)) == "two words\n"


def test_a_template_with_tools_finds_its_keys_on_smollm2(real_tokenizer):
    """`name` is a part of SmolLM2's control token `<repo_name>`."""
    tokenizer = copy.deepcopy(real_tokenizer("smollm2"))
    tokenizer.chat_template = CHAT_TEMPLATE
    renderer = ChatRenderer(tokenizer)
    call = {"type": "function", "function": {"name": "look", "arguments": {"name": "a", "filename": "b"}}}
    turn = renderer.decode(renderer.assistant_ids({"role": "assistant", "tool_calls": [call]}))
    assert turn == '<tool_call>\n{"name": "look", "arguments": {"name": "a", "filename": "b"}}\n</tool_call><|im_end|>'
    assert json.dumps(call) in renderer.decode(renderer.prompt_ids([{"role": "user", "content": "x"}], [call]))
