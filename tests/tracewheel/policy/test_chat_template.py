"""`policy.chat_template`: a template of the profile's own, wherever the policy speaks, and among what is exported."""

import json
from pathlib import Path

import pytest
from peft import PeftModel

from tracewheel.core.errors import ConfigError
from tracewheel.environments.base import play_calls
from tracewheel.environments.order_desk.environment import TOOLS, OrderDeskEnvironment, solution
from tracewheel.environments.order_desk.tasks import order_desk_task
from tracewheel.learner.models import load_models
from tracewheel.policy.chat_template import TEMPLATE_NAME, read_template
from tracewheel.policy.loading import load_base, load_renderer
from tracewheel.policy.saving import save_adapter

SHORT_TOOLS = str(Path(__file__).parents[3] / "configs/templates/smollm2.jinja")
ORDERS = [{"id": "K7", "customer": "Mia Kent", "item": "kettle", "amount": 24, "status": "shipped"}]


@pytest.fixture(scope="module")
def short(base):
    return load_renderer(base, "hermes", SHORT_TOOLS)


@pytest.fixture(scope="module")
def episode():
    goal = {"family": "status", "customer": "Mia Kent", "item": "kettle"}
    task = order_desk_task("Take back the kettle.", {"orders": ORDERS}, goal)
    return play_calls(OrderDeskEnvironment(), task, solution(task))


def test_a_tool_is_one_line_with_its_signature_and_description(short, base, episode):
    prompt = short.decode(short.prompt_ids(episode[:2], TOOLS))
    assert prompt.startswith(
        "<|im_start|>system\nYou work at an order desk.\nTools:\norders(customer) List a customer's orders.\n"
    )
    assert "\nrefund(order, amount) Pay back a shipped order.\n" in prompt and "\ndone() End the work.\n" in prompt
    own = load_renderer(base, "hermes")
    assert len(short.prompt_ids(episode[:2], TOOLS)) < 0.5 * len(own.prompt_ids(episode[:2], TOOLS))


def test_calls_and_replies_are_framed_as_hermes_frames_them(short, episode):
    ids, mask = short.conversation_ids(episode, TOOLS)
    prepared = [_with_objects(message) if "tool_calls" in message else message for message in episode]
    whole = short.tokenizer.apply_chat_template(prepared, tools=TOOLS, tokenize=False)
    assert short.decode(ids) == whole.rstrip("\n")
    parsed = short.parse(short.decode([number for number, own in zip(ids, mask, strict=True) if own]))
    assert [(call.name, call.arguments) for call in parsed.calls] == solution_of(episode)


def _with_objects(message):
    """As the renderer prepares a message: arguments as an object, content as text."""
    calls = [
        {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
        for call in message["tool_calls"]
    ]
    return {**message, "content": "", "tool_calls": calls}


def solution_of(episode):
    calls = [call["function"] for message in episode for call in message.get("tool_calls") or []]
    return [(call["name"], json.loads(call["arguments"])) for call in calls]


def test_without_tools_and_system_prompt_nothing_is_added(short):
    ids = short.prompt_ids([{"role": "user", "content": "hello"}], [])
    assert short.decode(ids) == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"


def test_a_changed_file_is_read_again(base, tmp_path):
    file = tmp_path / "own.jinja"
    file.write_text(Path(SHORT_TOOLS).read_text())
    before = load_renderer(base, "hermes", str(file)).prompt_ids([{"role": "user", "content": "a"}], TOOLS)
    file.write_text(Path(SHORT_TOOLS).read_text().replace("Tools:", "You have:"))
    after = load_renderer(base, "hermes", str(file)).prompt_ids([{"role": "user", "content": "a"}], TOOLS)
    assert before != after


def test_unusable_templates_are_named_with_their_line(base, tmp_path):
    file = tmp_path / "broken.jinja"
    with pytest.raises(ConfigError, match=r"policy\.chat_template: .*broken\.jinja.*name a file"):
        load_renderer(base, "hermes", str(file))
    file.write_text("{{ messages }}\n{% for m in messages %}\n{% endif %}")
    with pytest.raises(ConfigError, match=r"policy\.chat_template: .*broken\.jinja, line 3: "):
        load_renderer(base, "hermes", str(file))
    file.write_text("{{ raise_exception('system prompts are not for me') }}")
    with pytest.raises(ConfigError, match=r"policy\.chat_template: .*broken\.jinja: system prompts are not for me"):
        load_renderer(base, "hermes", str(file))


def test_updates_and_saved_adapters_carry_the_template(config, base, adapter, tmp_path):
    policy = config.policy.model_copy(update={"chat_template": SHORT_TOOLS})
    sections = config.model_copy(update={"policy": policy})
    load_models(sections, adapter, adapter).save(tmp_path / "updated", base, 4)
    model = PeftModel.from_pretrained(load_base(policy, base), adapter, adapter_name="own")
    save_adapter(policy, model, "own", tmp_path / "saved", version=0)
    for name in ("updated", "saved"):
        assert (tmp_path / name / "adapter" / TEMPLATE_NAME).read_text() == read_template(SHORT_TOOLS)
