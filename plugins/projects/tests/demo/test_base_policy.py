"""The stage that trains the tiny base, at a size that takes seconds, and its tokenizer."""

import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tracewheel.chat.renderer import ChatRenderer
from tracewheel.core.errors import ConfigError
from tracewheel.environments.workspace import tasks as words
from tracewheel.environments.workspace.environment import TOOLS
from tracewheel_projects.demo.base_policy import train_base_policy
from tracewheel_projects.demo.base_tokenizer import build_tokenizer
from tracewheel_projects.demo.config import BasePolicyConfig, load_base_config
from tracewheel_projects.demo.worlds import WORLDS

PIECES = WORLDS["workspace"].pieces()
TEXT = {"skills": {"repeat": 2, "list_folder": 1, "move_asked": 1}, "conversations": 60}
TINY = BasePolicyConfig.model_validate(
    {
        "threads": 1, "hidden_size": 32, "layers": 2, "heads": 2, "kv_heads": 1, "feed_forward": 48, "batch_tokens": 1024,
        "replay_rows": 20, "phases": [TEXT | {"steps": 90, "learning_rate": 1e-2}, TEXT | {"steps": 10}],
    }
)  # fmt: skip


def untrained(**changes):
    """TINY with a single, very small step."""
    phase = TINY.phases[-1].model_copy(update={"steps": 1, "learning_rate": 1e-9, "muon_learning_rate": 1e-9})
    return TINY.model_copy(update={"phases": (phase,), **changes})


LARGEST = 12 * 2**20
CONFIGS = Path(__file__).parents[4] / "configs"


@pytest.mark.parametrize(
    ("name", "world"),
    [
        ("base.yaml", "workspace"),
        ("refund_desk_base.yaml", "refund_desk"),
    ],
)
def test_the_shipped_profiles_parse(name, world):
    config = load_base_config(CONFIGS / name)
    assert config.world == world
    assert {skill for phase in config.phases for skill in phase.skills} <= set(WORLDS[world].skills)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("base")
    return out, train_base_policy(TINY, out)


def replay_loss(folder):
    """Mean cross-entropy of the assistant tokens of the replay text."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    losses = []
    for row in pd.read_parquet(folder / "replay.parquet").itertuples():
        ids, mask = torch.tensor(list(row.input_ids)), torch.tensor(list(row.assistant_masks)).bool()
        with torch.no_grad():
            logits = model(input_ids=ids[None]).logits[0, :-1]
        losses.append(torch.nn.functional.cross_entropy(logits, ids[1:], reduction="none")[mask[1:]])
    return torch.cat(losses).mean().item()


def test_training_lowers_the_loss_on_unseen_text(trained, tmp_path):
    out, figures = trained
    train_base_policy(untrained(), tmp_path)
    assert replay_loss(out) < 0.6 * replay_loss(tmp_path)
    assert figures["final_loss"] > 0


def test_the_same_profile_gives_the_same_bytes(tmp_path, files_of):
    brief = TINY.model_copy(update={"phases": (TINY.phases[-1], TINY.phases[-1])})
    for out in (tmp_path / "one", tmp_path / "other"):
        out.mkdir()
        train_base_policy(brief, out)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "other")


def test_another_seed_gives_another_policy_and_the_same_tokenizer(trained, tmp_path, files_of):
    train_base_policy(untrained(seed=1), tmp_path)
    one, other = files_of(trained[0]), files_of(tmp_path)
    assert one["model.safetensors"] != other["model.safetensors"]
    assert one["replay.parquet"] != other["replay.parquet"]
    assert one["tokenizer.json"] == other["tokenizer.json"]


def test_the_output_is_a_plain_folder_for_transformers(trained):
    out, figures = trained
    assert sum(path.stat().st_size for path in out.rglob("*")) < LARGEST
    model, tokenizer = AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    assert model.num_parameters() == figures["parameters"]
    assert len(tokenizer) <= model.config.vocab_size
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "List /inbox."}], tools=TOOLS, add_generation_prompt=True, return_tensors="pt"
    )["input_ids"]
    said = model.generate(ids, max_new_tokens=5, do_sample=False)
    assert said.shape[1] <= ids.shape[1] + 5
    described = json.loads((out / "base.json").read_text())
    assert BasePolicyConfig.model_validate(described["config"]) == TINY
    assert described["figures"] == figures


def test_the_shipped_base_matches_this_code(base, renderer, tmp_path):
    """Size and tokenizer of the shipped base; a piece added since would be split into several tokens."""
    model = AutoModelForCausalLM.from_pretrained(base)
    assert 0.5e6 <= model.num_parameters() <= 5e6
    assert model.config.eos_token_id == renderer.end_of_turn_id
    build_tokenizer(PIECES).save_pretrained(tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == (Path(base) / "tokenizer.json").read_bytes()
    assert build_tokenizer(PIECES).chat_template == renderer.tokenizer.chat_template
    assert sum(path.stat().st_size for path in Path(base).rglob("*")) < LARGEST


def test_replay_rows_are_conversations(trained):
    replay = pd.read_parquet(trained[0] / "replay.parquet")
    own = ChatRenderer(AutoTokenizer.from_pretrained(trained[0]))
    assert len(replay) == TINY.replay_rows
    for row in replay.itertuples():
        assert len(row.input_ids) == len(row.assistant_masks)
        assert 0 < sum(row.assistant_masks) < len(row.input_ids)
        assert own.decode(list(row.input_ids)).startswith("<|im_start|>system\n")
        assert row.input_ids[-1] == own.end_of_turn_id and row.assistant_masks[-1] == 1


def test_the_tokenizer_is_built_the_same_each_time(tmp_path, files_of):
    for name in ("one", "two"):
        build_tokenizer(PIECES).save_pretrained(tmp_path / name)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")


@pytest.mark.parametrize(
    "piece", [*words.STEMS, *words.EXTENSIONS, *words.SOURCES, *words.DESTINATIONS, *words.WORDS, words.LIST_PATH]
)
def test_a_name_is_one_token_in_any_position(piece):
    tokenizer = build_tokenizer(PIECES)
    (token,) = tokenizer.encode(piece, add_special_tokens=False)
    for before, after in (("/", "/"), (" ", "."), ("\n", "\n"), ('["', '"]')):
        assert token in tokenizer.encode(before + piece + after, add_special_tokens=False)


def test_an_unknown_skill_is_an_error_before_training(tmp_path):
    phase = TINY.phases[0].model_copy(update={"skills": {"juggle": 1}})
    with pytest.raises(ConfigError, match="juggle"):
        train_base_policy(TINY.model_copy(update={"phases": (phase,)}), tmp_path)
