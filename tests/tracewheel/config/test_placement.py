"""Where parts compute: what is refused, and what each process sees."""

import os

import pytest
from pydantic import ValidationError

from tracewheel.config import RetrainConfig
from tracewheel.config.placement import check_cards, placed, visible
from tracewheel.core.errors import ConfigError

SERVER = {"kind": "vllm_server", "tensor_parallel_size": 2}


def profile(placement=None, *, engine=None, mode="sync", workers=1, backend=None, device="cuda", **sections):
    rollout = {"engine": engine or {"kind": "vllm"}, "mode": mode, "workers": {"count": workers}}
    learner = {"backend": backend} if backend else {}
    policy = {"device": device}
    values = {"name": "test", "policy": policy, "rollout": rollout, "learner": learner, "placement": placement or {}}
    return RetrainConfig.model_validate(values | sections)


def places(config):
    return {part.part: part.cards for part in placed(config)}


def test_one_gpu_is_shared_by_learner_and_vllm_as_before():
    assert places(profile()) == {"learner": (0,), "engine of this process": (0,)}
    assert places(profile(device="cpu")) == {}
    assert places(profile(engine={"kind": "transformers"})) == {"learner": (0,)}, "it goes before the update"


def test_learner_and_several_servers_have_gpus_of_their_own():
    config = profile(
        {"learner": [0, 1], "vllm": [[2, 3], [4, 5]], "share": "refuse"}, engine=SERVER, backend={"kind": "deepspeed"}
    )
    assert places(config) == {"learner": (0, 1), "vLLM server 1": (2, 3), "vLLM server 2": (4, 5)}
    check_cards(config, 6)
    with pytest.raises(ConfigError, match="vLLM server 2 takes GPU 5, but this process sees GPUs 0 to 4"):
        check_cards(config, 5)
    with pytest.raises(
        ConfigError, match="policy.device: is 'cuda', but this process sees no GPU.* Set policy.device to 'cpu'"
    ):
        check_cards(config, 0)


@pytest.mark.parametrize("device", ["gpu", "cuda:", "CPU", ""])
def test_a_device_that_is_none_is_refused_when_the_profile_is_read(device):
    with pytest.raises(ValidationError, match=r"policy\.device"):
        profile(device=device)


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("rollout worker 1 and rollout worker 2 would both load an engine on GPU 1",
         {"mode": "async", "workers": 2, "placement": {"workers": [[1], [1]]}}),
        ("engine of this process and rollout worker 1 would both load an engine on GPU 0", {"mode": "async"}),
        ("this process and rollout worker 1 would both load", {"mode": "async", "engine": {"kind": "transformers"}}),
        ("vLLM server 1 and vLLM server 2 would both", {"engine": SERVER, "placement": {"vllm": [[0, 1], [1, 2]]}}),
        ("learner and engine of this process have GPU 0 in common", {"placement": {"share": "refuse"}}),
        ("takes 2 different GPUs", {"engine": SERVER, "placement": {"vllm": [[0]]}}),
        ("takes 2 different GPUs", {"engine": SERVER, "placement": {"vllm": [[0, 0]]}}),
        ("GPUs for 1 workers, but rollout.mode has 0", {"placement": {"workers": [[1]]}}),
        ("for servers that the run starts", {"placement": {"vllm": [[1]]}}),
        ("for servers that the run starts",
         {"engine": {"kind": "vllm_server", "servers": ["http://a"]}, "placement": {"vllm": [[1]]}}),
        ("the backend 'local' computes on policy.device", {"placement": {"learner": [1]}}),
        ("3 GPUs, but learner.backend.processes is 2",
         {"backend": {"kind": "deepspeed", "processes": 2}, "placement": {"learner": [0, 1, 2]}}),
        ("names a GPU twice", {"backend": {"kind": "deepspeed"}, "placement": {"learner": [1, 1]}}),
        ("'sleep' needs an engine of vLLM and rollout.mode 'sync'",
         {"engine": {"kind": "transformers"}, "placement": {"share": "sleep"}}),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_a_sentence(message, arguments):
    with pytest.raises(ValidationError, match=message):
        profile(**arguments)


def test_the_plan_says_how_much_memory_each_part_takes():
    engine = {"kind": "vllm", "gpu_memory_utilization": 0.8}
    assert [part.memory for part in placed(profile(engine=engine))] == [
        "what it needs, between updates too",
        "a share of 0.8",
    ]
    assert [part.memory for part in placed(profile({"share": "sleep"}, engine=engine))] == [
        "what it needs, during updates",
        "a share of 0.8, not during updates",
    ]


def test_engines_share_a_gpu_only_on_purpose():
    assert profile({"share": "engines"}, mode="async")
    assert profile({"workers": [[1]]}, mode="async")


def test_the_learner_is_not_kept_where_another_needs_its_memory():
    assert profile().keeps_learner and profile(device="cpu", engine={"kind": "transformers"}).keeps_learner
    assert not profile(engine={"kind": "transformers"}).keeps_learner
    assert not profile({"share": "sleep"}).keeps_learner
    assert profile({"share": "sleep", "keep_learner": True}).keeps_learner


def test_numbers_count_within_what_is_visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible(()) == {}
    assert visible((1, 3)) == {"CUDA_VISIBLE_DEVICES": "1,3"}
    monkeypatch.setitem(os.environ, "CUDA_VISIBLE_DEVICES", "4,GPU-abc,6")
    assert visible((1, 2)) == {"CUDA_VISIBLE_DEVICES": "GPU-abc,6"}
    with pytest.raises(ConfigError, match="GPU 3, but CUDA_VISIBLE_DEVICES is 4,GPU-abc,6"):
        visible((3,))
