"""One side of benchmarks/rollouts.py: a child process that rolls out the workloads it is sent.

Started with (side, folder of the policy, threads, setting as JSON). Reads one workload a line from
standard input and answers with one line of figures, after loading and one unmeasured rollout.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from measuring import Meter
from rollouts_workload import CALL, ChainEnvironment, Workload, tasks, trl_chat_template

from tracewheel.policy.loading import load_renderer

BASE = Path("data/base")
TURN_ROOM, LONGEST = 16, 2048

Rollout = Callable[[Workload], tuple[Meter, int]]  # the meter of one rollout, and the tokens that were generated


def ours(folder: Path, threads: int, setting: dict[str, Any]) -> Rollout:
    """`run_episodes` over the engine of the setting; each rollout has a new engine, made outside the meter's time."""
    from tracewheel.config import EngineSections, RetrainConfig
    from tracewheel.engines.making import make_engine
    from tracewheel.policy.adapters import PolicyRef
    from tracewheel.rollout.rollout import RolloutPlan, run_episodes

    def roll(workload: Workload) -> tuple[Meter, int]:
        config = RetrainConfig.model_validate(
            {
                "name": "benchmark",
                "threads": threads,
                "policy": {"base": str(folder)},
                "environment": {"kind": ChainEnvironment.kind},
                "rollout": {
                    "engine": setting,
                    "group_size": workload.group,
                    "max_turns": workload.turns,
                    # vLLM keeps its core, which takes half a minute to start, while these settings stay the same.
                    "max_tokens": LONGEST if setting["kind"] == "vllm" else workload.max_tokens,
                    "max_turn_tokens": TURN_ROOM,
                },
            }
        )
        engine, renderer = make_engine(
            EngineSections.of(config), PolicyRef(str(folder)), greedy=False, slots=workload.concurrency
        )
        with Meter() as meter:
            done = run_episodes(
                engine, renderer, config.rollout, RolloutPlan(tasks(workload), samples=workload.group, seed=workload.seed)
            )
        if {(len(each.turns), each.stop_reason) for each in done} != {(workload.turns, "finished")}:
            raise ValueError("an episode of ours did not go as scripted")
        return meter, sum(sum(each.action_mask) for each in done)

    return roll


class TrlChain:
    """The environment for GRPOTrainer: a class whose public methods are the tools."""

    def reset(self, turns: int, text: str, **_: Any) -> None:
        [task] = tasks(Workload(turns=turns, group=1, concurrency=1))
        task.initial_state["text"] = text
        self._environment = ChainEnvironment()
        self._environment.reset(task)

    def move_file(self, source: str, destination: str) -> str:
        """Moves a file into a folder and lists what is left where it was.

        Args:
            source: The file.
            destination: The folder to move it into.
        """
        return self._environment.step("move_file", {"source": source, "destination": destination}).text


def trl(folder: Path, threads: int, setting: dict[str, Any]) -> Rollout:
    """GRPOTrainer's own tool loop: only the time in its `_generate` counts, without update and log-probabilities."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer
    from trl.chat_template_utils import qwen3_template

    class Watched(GRPOTrainer):
        def _generate(self, prompts: list[Any]) -> Any:
            with Meter() as meter:
                result = super()._generate(prompts)
            self.watched = meter, sum(sum(mask) for mask in result[2])
            self.turns = {sum(message["role"] == "assistant" for message in messages) for messages in result[3]}
            return result

    def roll(workload: Workload) -> tuple[Meter, int]:
        tokenizer = AutoTokenizer.from_pretrained(folder, chat_template=trl_chat_template(BASE))
        tokenizer.response_template = qwen3_template
        rows = [
            {
                "prompt": [
                    {"role": "system", "content": ChainEnvironment.system_prompt},
                    {"role": "user", "content": task.prompt},
                ],
                "turns": workload.turns,
                "text": task.initial_state["text"],
            }
            for task in tasks(workload)
            for _ in range(workload.group)
        ]
        with tempfile.TemporaryDirectory() as out:
            trainer = Watched(
                model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
                reward_funcs=lambda completions, **_: [0.0] * len(completions),
                processing_class=tokenizer,
                train_dataset=Dataset.from_list(rows[:: workload.group]),
                environment_factory=TrlChain,
                args=GRPOConfig(
                    output_dir=out,
                    per_device_train_batch_size=workload.concurrency,
                    num_generations=workload.group,
                    max_completion_length=workload.max_tokens,
                    # The last turn's call is not executed, so there are as many turns as in ours.
                    max_tool_calling_iterations=workload.turns - 1,
                    temperature=1.0,
                    beta=0.0,
                    use_cpu=True,
                    bf16=False,
                    gradient_checkpointing=False,
                    report_to="none",
                    disable_tqdm=True,
                    **setting,
                ),
            )
            trainer.model.train()
            with torch.no_grad():
                trainer._generate_and_score_completions(rows)
        if trainer.turns != {workload.turns}:
            raise ValueError(f"an episode of TRL's did not go as scripted: {trainer.turns} turns")
        return trainer.watched

    return roll


def prefill_each_turn(folder: Path, threads: int, setting: dict[str, Any]) -> Rollout:
    """Batched `generate`, which reads the whole conversation again each turn; our renderer does the rest."""
    return _turn_by_turn(folder, free_prefill=False)


def prefill_uncounted(folder: Path, threads: int, setting: dict[str, Any]) -> Rollout:
    """The same without the cost of reading, that is of passes over more than one token per row."""
    return _turn_by_turn(folder, free_prefill=True)


def _turn_by_turn(folder: Path, *, free_prefill: bool) -> Rollout:
    model, renderer = _model(folder), load_renderer(str(folder), "hermes")
    reading = _Reading(model)

    def roll(workload: Workload) -> tuple[Meter, int]:
        reading.forget()
        with Meter() as meter:
            rows, environments = _prompts(workload, renderer)
            open_rows, generated = list(range(len(rows))), 0
            while open_rows:
                turns = _generate(model, [rows[index] for index in open_rows], TURN_ROOM, renderer)
                still_open = []
                for index, sampled in zip(open_rows, turns, strict=True):
                    turn = sampled[: sampled.index(renderer.end_of_turn_id) + 1]
                    generated += len(turn)
                    if _observe(rows[index], turn, environments[index], renderer):
                        still_open.append(index)
                open_rows = still_open
        if free_prefill:
            meter.cpu_s, meter.wall_s = meter.cpu_s - reading.cpu_s, meter.wall_s - reading.wall_s
        return meter, generated

    return roll


def _observe(row: list[int], turn: list[int], environment: ChainEnvironment, renderer: Any) -> bool:
    """Append a turn and its observation to a row; whether the episode continues."""
    [call] = renderer.parse(renderer.decode(turn[:-1])).calls
    observation = environment.step(call.name, call.arguments)
    row += turn + renderer.observation_ids([{"role": "tool", "content": observation.text}])
    return not observation.done


def continuous_batching(folder: Path, threads: int, setting: dict[str, Any]) -> Rollout:
    """Transformers' own continuous batching with log-probabilities: each turn is a request with all ids so far.

    Its prefix cache may share the blocks of earlier turns and of other rows. An observation goes in at once, while other
    rows generate. The manager's start and warm-up are outside the meter's time.
    """
    from transformers import ContinuousBatchingConfig, GenerationConfig

    model, renderer = _model(folder), load_renderer(str(folder), "hermes")
    generation = GenerationConfig(
        do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=TURN_ROOM, eos_token_id=renderer.end_of_turn_id
    )

    def roll(workload: Workload) -> tuple[Meter, int]:
        config = ContinuousBatchingConfig(return_logprobs=True, seed=workload.seed, **setting)
        batching = model.continuous_batching_context_manager(generation, continuous_batching_config=config)
        with batching as manager, Meter() as meter:
            rows, environments = _prompts(workload, renderer)
            for index, row in enumerate(rows):
                manager.add_request(row, request_id=f"{index}-0")
            left, generated = len(rows), 0
            while left:
                output = manager.get_result(timeout=1.0)
                if output is None:
                    continue
                if output.error or len(output.logprobs) != len(output.generated_tokens):
                    raise ValueError(f"a request of continuous batching failed: {output.error}")
                index, turn = map(int, output.request_id.split("-"))
                generated += len(output.generated_tokens)
                if _observe(rows[index], output.generated_tokens, environments[index], renderer):
                    manager.add_request(rows[index], request_id=f"{index}-{turn + 1}")
                else:
                    left -= 1
        return meter, generated

    return roll


class _Reading:
    """The cost of a model's passes over more than one token per row."""

    def __init__(self, model: Any) -> None:
        self._meter: Meter | None = None
        self.forget()
        model.register_forward_pre_hook(self._begin, with_kwargs=True)
        model.register_forward_hook(self._end)

    def forget(self) -> None:
        self.cpu_s = self.wall_s = 0.0

    def _begin(self, module: Any, arguments: Any, named: dict[str, Any]) -> None:
        self._meter = Meter().__enter__() if named["input_ids"].shape[1] > 1 else None

    def _end(self, module: Any, arguments: Any, output: Any) -> None:
        if self._meter:
            self._meter.__exit__()
            self.cpu_s, self.wall_s = self.cpu_s + self._meter.cpu_s, self.wall_s + self._meter.wall_s


def one_go(folder: Path, threads: int, setting: dict[str, Any]) -> Rollout:
    """As many tokens per row in one call of `generate`, without observations: one prefill."""
    model, renderer = _model(folder), load_renderer(str(folder), "hermes")
    model.generation_config.eos_token_id = None
    name, arguments = CALL
    call = {"type": "function", "function": {"name": name, "arguments": arguments}}
    turn = len(renderer.assistant_ids({"role": "assistant", "content": "", "tool_calls": [call]}))

    def roll(workload: Workload) -> tuple[Meter, int]:
        with Meter() as meter:
            prompts, _ = _prompts(workload, renderer)
            rows = _generate(model, prompts, workload.turns * turn, renderer, stops=False)
        if {len(row) for row in rows} != {workload.turns * turn}:
            raise ValueError("a row of plain generate has another length")
        return meter, sum(len(row) for row in rows)

    return roll


def _model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()


def _prompts(workload: Workload, renderer: Any) -> tuple[list[list[int]], list[ChainEnvironment]]:
    rows, environments = [], []
    for task in tasks(workload):
        for _ in range(workload.group):
            environment = ChainEnvironment()
            environment.reset(task)
            messages = [{"role": "system", "content": environment.system_prompt}, {"role": "user", "content": task.prompt}]
            rows.append(list(renderer.prompt_ids(messages, environment.tools())))
            environments.append(environment)
    return rows, environments


@torch.inference_mode()
def _generate(model: Any, rows: list[list[int]], longest: int, renderer: Any, stops: bool = True) -> list[list[int]]:
    """Sampled continuations of left-padded rows."""
    from transformers import GenerationConfig

    pad, width = renderer.tokenizer.pad_token_id, max(len(row) for row in rows)
    ids = torch.tensor([[pad] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    config = GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_new_tokens=longest,
        pad_token_id=pad,
        eos_token_id=renderer.end_of_turn_id if stops else None,
    )
    out = model.generate(input_ids=ids, attention_mask=mask, generation_config=config)
    return out[:, width:].tolist()


SIDES = {
    "ours": ours,
    "ours_vllm": ours,
    "trl": trl,
    "continuous_batching": continuous_batching,
    "prefill_each_turn": prefill_each_turn,
    "prefill_uncounted": prefill_uncounted,
    "one_go": one_go,
}


def main() -> None:
    # What libraries print goes to standard error; the real standard output is for figures.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    side, folder, threads, setting = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
    torch.set_num_threads(threads)
    roll = SIDES[side](folder, threads, setting)
    roll(Workload(turns=2, group=4, concurrency=16))
    for line in sys.stdin:
        workload = Workload(**json.loads(line))
        meter, generated = roll(workload)
        figures = {"cpu_s": meter.cpu_s, "wall_s": meter.wall_s, "generated": generated, "episodes": workload.concurrency}
        print(json.dumps(figures), file=out, flush=True)


if __name__ == "__main__":
    main()
