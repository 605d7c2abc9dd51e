"""Exports loaded by vLLM, and by llama.cpp in an environment of its own, give the greedy answers of PEFT's own model.

For llama.cpp set TRACEWHEEL_LLAMA to the Python of an environment that has `xllamacpp`, or install that beside Tracewheel.
"""

import importlib.util
import json
import os
import random
import subprocess
import sys

import pytest
import torch
from peft import PeftModel

from flows.cli import main
from tracewheel.config import PolicyConfig
from tracewheel.engines.vllm_settings import environment
from tracewheel.environments.workspace.environment import TOOLS
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.policy.loading import load_base, load_renderer

pytestmark = pytest.mark.slow
PROMPTS, LENGTH = 8, 24
QUIET = {"VLLM_CPU_KVCACHE_SPACE": "1"}  # GiB: the default is a share of the machine's memory
VLLM = """
import json, sys
from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

if __name__ == "__main__":
    model, adapter, asked = sys.argv[1], sys.argv[2], json.load(open(sys.argv[3]))
    more = {"enable_lora": True, "max_lora_rank": 16, "max_loras": 1} if adapter else {}
    llm = LLM(model, dtype="float32", max_model_len=1024, enforce_eager=True, max_num_seqs=4, **more)
    greedy = SamplingParams(temperature=0, max_tokens=asked["length"], stop_token_ids=[asked["end"]], detokenize=False)
    lora = LoRARequest("adapter", 1, adapter) if adapter else None
    prompts = [{"prompt_token_ids": ids} for ids in asked["prompts"]]
    done = llm.generate(prompts, greedy, lora_request=lora, use_tqdm=False)
    json.dump([list(one.outputs[0].token_ids) for one in done], open(sys.argv[4], "w"))
"""
LLAMA = """
import json, os, sys, urllib.request
import xllamacpp

def ask(path, **body):
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(server.listening_address + path, json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(request, timeout=300))

asked = json.load(open(sys.argv[2]))
settings = xllamacpp.CommonParams()
settings.model.path, settings.n_ctx, settings.n_parallel, settings.n_gpu_layers = sys.argv[1], 2048, 1, 0
settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
settings.warmup, settings.port = False, 0
server = xllamacpp.Server(settings)
greedy = {"n_predict": asked["length"], "temperature": 0, "samplers": ["top_k"], "top_k": 1, "return_tokens": True}
made = {
    "ids": [ask("/tokenize", content=text, add_special=False, parse_special=True)["tokens"] for text in asked["texts"]],
    "answers": [ask("/completion", prompt=ids, cache_prompt=False, **greedy)["tokens"] for ids in asked["prompts"]],
}
with open(sys.argv[3], "w") as file:
    json.dump(made, file)
os._exit(0)
"""


@pytest.fixture(scope="module")
def adapter(make_adapter, tmp_path_factory):
    """An adapter that changes the base's answers."""
    return make_adapter(tmp_path_factory.mktemp("state"), rank=8, noise=0.08)


@pytest.fixture(scope="module")
def asked(base):
    """Prompts of the base's own tasks: texts and ids."""
    draw, renderer = random.Random(5), load_renderer(base, "hermes")
    tasks = [make_task(FAMILIES[n % len(FAMILIES)], 1 + n % 2, draw) for n in range(PROMPTS)]
    prompts = [list(map(int, renderer.prompt_ids([{"role": "user", "content": task.prompt}], TOOLS))) for task in tasks]
    return {"prompts": prompts, "texts": [renderer.decode(ids) for ids in prompts], "length": LENGTH, "end": 258}


@pytest.fixture(scope="module")
def expected(base, adapter, asked):
    """PEFT's greedy answers. Those of the base alone are others."""
    plain = answers(load_base(PolicyConfig(), base), asked)
    found = answers(PeftModel.from_pretrained(load_base(PolicyConfig(), base), adapter), asked)
    assert sum(one != other for one, other in zip(plain, found, strict=True)) >= PROMPTS // 2
    return found


def answers(model, asked):
    given = {"max_new_tokens": LENGTH, "do_sample": False, "eos_token_id": asked["end"], "pad_token_id": 0}
    made = []
    for ids in asked["prompts"]:
        whole = model.eval().generate(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)).long(), **given)
        made.append(whole[0, len(ids) :].tolist())
    return made


def exported(adapter, base, form, out):
    assert main(["export", str(adapter), "--base", base, "--format", form, "--name", "tiny", "--out", str(out), "--json"]) == 0
    return out


def answered(python, program, folder, asked, *arguments, **variables):
    """What a program of its own answers."""
    (folder / "program.py").write_text(program)
    (folder / "asked.json").write_text(json.dumps(asked))
    command = [python, folder / "program.py", *arguments, folder / "asked.json", folder / "answers.json"]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "answers.json").read_text())


@pytest.mark.vllm
@pytest.mark.parametrize("form", ["adapter", "merged"])
def test_vllm_answers_as_peft(form, adapter, base, asked, expected, tmp_path):
    out = exported(adapter, base, form, tmp_path / "out")
    given = (base, out) if form == "adapter" else (out, "")
    assert answered(sys.executable, VLLM, tmp_path, asked, *given, **QUIET, **environment(in_process=True)) == expected


def test_llama_cpp_answers_as_peft_and_reads_texts_alike(adapter, base, asked, expected, tmp_path):
    python = os.environ.get("TRACEWHEEL_LLAMA") or (sys.executable if importlib.util.find_spec("xllamacpp") else None)
    if python is None:
        pytest.skip("no xllamacpp: set TRACEWHEEL_LLAMA to the Python of an environment that has it")
    merged, gguf = exported(adapter, base, "merged", tmp_path / "merged"), tmp_path / "tiny.gguf"
    assert main(["export-gguf", str(merged), "--out", str(gguf)]) == 0
    made = answered(python, LLAMA, tmp_path, asked, gguf)
    assert made["ids"] == asked["prompts"]
    assert [words(ids, asked) for ids in made["answers"]] == [words(ids, asked) for ids in expected]


def words(ids, asked):
    """An answer without the token that ends it, which llama.cpp does not return."""
    return ids[: ids.index(asked["end"])] if asked["end"] in ids else ids
