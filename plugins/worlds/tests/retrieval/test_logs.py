"""The logs and the base text of retrieval QA: reproducible, under half good, no name on two sides, every word one token."""

import json
import random
from collections import defaultdict
from pathlib import Path

import pytest

from tracewheel.chat.renderer import ChatRenderer
from tracewheel.config import CurateSections, load_config
from tracewheel.curation.curate import curate
from tracewheel.curation.curated_folder import load_tasks
from tracewheel.environments.base import play_calls
from tracewheel.scoring.verifiers.exact_match import AnswerMatchVerifier
from tracewheel.traces.ingest import ingest
from tracewheel_projects.demo.base_tokenizer import START_OF_TURN, build_tokenizer
from tracewheel_projects.demo.worlds import WORLDS
from tracewheel_worlds.retrieval.agent import solution
from tracewheel_worlds.retrieval.environment import RetrievalEnvironment
from tracewheel_worlds.retrieval.logs import HABITS, SLIPS, faulty_calls, log_lines
from tracewheel_worlds.retrieval.stock import desk_of
from tracewheel_worlds.retrieval.tasks import FAMILIES, TIERS, make_task

WORLD = WORLDS["retrieval"]
CONFIG = Path(__file__).parents[2] / "configs/retrieval.yaml"


@pytest.fixture(scope="module")
def lines():
    return list(log_lines())


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(WORLD.pieces())


def score(task, calls):
    environment = RetrievalEnvironment()
    play_calls(environment, task, calls)
    return AnswerMatchVerifier().verify(task, environment.snapshot())[0]


def whole(ids, tokenizer):
    """Whether each token is one of the world's pieces or a control token."""
    return {tokenizer.decode([token]) for token in ids} <= WORLD.pieces() | set(tokenizer.all_special_tokens) | {START_OF_TURN}


def test_the_same_seed_gives_the_same_logs_and_under_half_are_good(lines):
    again = log_lines(0)
    assert [next(again) for _ in range(20)] == lines[:20] and next(log_lines(1)) != lines[0]
    rewards = defaultdict(list)
    for line in lines:
        if b'"reward"' in line and line.endswith(b"}}}"):
            record = json.loads(line.decode(errors="replace"))
            rewards[record["environment"]["goal"]["family"]].append(record["reward"])
    means = {family: sum(values) / len(values) for family, values in rewards.items()}
    assert means.keys() == set(FAMILIES) and 0.3 < sum(means.values()) / 4 < 0.45
    assert all(0.15 < mean < 0.7 for mean in means.values())


def test_habits_are_wrong_except_for_one_that_guesses():
    rng = random.Random(3)
    for family, habit in HABITS.items():
        tasks = [make_task(family, TIERS[n % 4], n % 12, rng) for n in range(60)]
        mean = sum(score(task, faulty_calls(task, habit)) for task in tasks) / len(tasks)
        assert 0.3 < mean < 0.7 if family == "comparison" else mean == 0.0, family
        assert not any(score(task, faulty_calls(task, slip)) for task in tasks for slip in SLIPS)


@pytest.mark.slow
def test_the_curated_sets_share_no_name(lines, tmp_path):
    log = tmp_path / "logs.jsonl"
    log.write_bytes(b"".join(line + b"\n" for line in lines))
    config = load_config(CONFIG, [f"ingest.paths=[{log}]"])
    for name in ("ingested", "curated"):
        (tmp_path / name).mkdir()
    ingest(config.ingest, tmp_path / "ingested")
    curate(CurateSections.of(config), tmp_path / "ingested", tmp_path / "curated")
    funnel = json.loads((tmp_path / "curated/report.json").read_text())["funnel"]
    assert funnel["traces"] >= 1116 and funnel["replayed"] >= 1116 and funnel["unscored"] <= 1  # a few lines are malformed
    assert funnel["dropped_tasks"] == {} and funnel["tasks"] == 612
    desks, sizes = {}, {}
    for split in ("train", "validation", "held_out", "harder"):
        tasks = load_tasks(tmp_path / "curated", split)
        sizes[split] = len(tasks)
        desks[split] = {desk_of(task.goal["hops"][0]) for task in tasks}
        assert {task.family for task in tasks} == set(FAMILIES)
    assert sizes == {"train": 144, "validation": 120, "held_out": 200, "harder": 100}
    assert desks["train"].isdisjoint(desks["validation"]) and (desks["train"] | desks["validation"]).isdisjoint(
        desks["held_out"]
    )
    assert desks["harder"] == desks["held_out"]


def test_no_episode_needs_single_bytes(tokenizer):
    """All that tools and agents say is in whole pieces; the tokenizer falls back to none."""
    renderer, rng, lengths = ChatRenderer(tokenizer), random.Random(5), defaultdict(list)
    for number in range(96):
        task = make_task(FAMILIES[number % 4], TIERS[number // 4 % 4], number % 12, rng)
        for calls in (solution(task), faulty_calls(task, HABITS[task.family])):
            ids, mask = renderer.conversation_ids(play_calls(RetrievalEnvironment(), task, calls), WORLD.tools)
            assert whole(ids, tokenizer) and sum(mask) >= 5
            lengths[task.family].append(len(ids))
    assert max(map(max, lengths.values())) < 200


@pytest.mark.parametrize("skill", list(WORLD.skills))
def test_skills_are_conversations_of_whole_pieces(skill, tokenizer):
    rng = random.Random(6)
    for _ in range(10):
        ids, mask = ChatRenderer(tokenizer).conversation_ids(WORLD.skills[skill](rng), WORLD.tools)
        assert sum(mask) and whole(ids, tokenizer)


def test_complete_episodes_of_the_base_are_about_the_training_desks():
    rng = random.Random(7)
    for _ in range(20):
        prompt = WORLD.complete(rng, ("fact",))[1]["content"]
        assert {desk_of(word.strip("?.,")) for word in prompt.split()} - {None} <= set(range(7))
