"""The endpoint of a real vLLM server: it answers as the protocol tests assume, and its episodes are trainable."""

import os
import subprocess
import sys
import time

import httpx
import pytest
import torch

from tracewheel.config import RetrainConfig
from tracewheel.core.files import read_records
from tracewheel.core.processes import free_port
from tracewheel.core.types import Trajectory
from tracewheel.policy.loading import load_base
from tracewheel.teacher.baseline import evaluate_endpoint

pytestmark = [pytest.mark.slow, pytest.mark.vllm]
SETTINGS = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1"}
OPTIONS = ["--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "8"]
CALLS = ["--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--enable-prompt-tokens-details"]


@pytest.fixture(scope="module")
def server(base, tmp_path_factory):
    """The address of a server of the tiny base."""
    pytest.importorskip("vllm")
    port = free_port()
    where = ["--model", base, "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port)]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *where, *OPTIONS, *CALLS]
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("w") as stream:
        process = subprocess.Popen(command, env=os.environ | SETTINGS, stdout=stream, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 600
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{port}/health", timeout=2).raise_for_status()
                break
            except httpx.HTTPError:
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()


def test_sampled_episodes_equal_the_policys_id_by_id(server, config, base, renderer, tasks, tmp_path):
    """Every prompt continues the ids before it, and the log-probabilities equal the trainer's."""
    endpoint = {"endpoint": server, "model": "tiny", "token_ids": True, "timeout": 300, "max_turn_tokens": 48}
    prices = {"prices": {"input": 1.0, "cached_input": 0.5, "output": 2.0}}
    profile = RetrainConfig.model_validate(config.model_dump() | {"baseline": endpoint | prices})
    summary, played = evaluate_endpoint(profile, tasks[::2], tmp_path, samples=2, journal=tmp_path / "journal.jsonl")
    assert played.stopped == "" and summary["endpoint"]["trainable"] == 8 and summary["endpoint"]["replies_without_usage"] == 0
    model = load_base(config.policy, base).eval()
    gaps = []
    for trajectory in read_records(tmp_path / "sampled" / "trajectories.parquet", Trajectory):
        assert trajectory.token_ids[-1] == renderer.end_of_turn_id or trajectory.stop_reason == "max_tokens"
        ids = torch.tensor([trajectory.token_ids])
        with torch.no_grad():
            fresh = model(ids).logits.log_softmax(-1)[0, :-1].gather(-1, ids[0, 1:, None]).squeeze(-1)
        acted = torch.tensor(trajectory.action_mask[1:]).bool()
        gaps.append((fresh - torch.tensor(trajectory.logprobs[1:]))[acted].abs().max().item())
    assert max(gaps) < 1e-4
    taken = summary["endpoint"]
    cost = taken["prompt_tokens"] - 0.5 * taken["cached_tokens"] + 2.0 * taken["completion_tokens"]
    assert taken["cost"] == pytest.approx(cost / 1e6)
