"""TRL's side of benchmarks/time_to_success.py: GRPOTrainer with `environment_factory`, for the environment of any profile.

To let TRL do its best, it gets what our loop gets, as `time_to_success_tokens.py` checks before each run:

- Prompts and observations equal, token by token, those that the warm start knows (our tools' schemas, our texts for a
  wrong call). GRPOTrainer reads turns with the tokenizer's `parse_response`, which is our reading here: every call, one of an
  unknown tool and a malformed one too, is the one tool `call` of the environment class.
- A turn is cut at `max_turn_tokens` as ours is, and an episode has no fewer tokens than ours.
- A finished episode ends at once. GRPOTrainer has no way to express that, so the answer to the tool that ends it is longer
  than the rest of the completion, and for such an answer it leaves the conversation as it was.

One difference remains: GRPOTrainer does not carry out the calls of an episode's last possible turn, the `max_turns`-th.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rollouts_workload import trl_chat_template
from time_to_success_sides import Race
from time_to_success_tokens import check_same_tokens, trl_rows

from tracewheel.chat.renderer import ChatRenderer
from tracewheel.chat.tokenizer import load_tokenizer
from tracewheel.config import PolicyConfig, RetrainConfig, RubricConfig, UpdateSections
from tracewheel.core.types import Task
from tracewheel.curation.curated_folder import load_tasks
from tracewheel.environments import make_environment
from tracewheel.policy.adapters import base_folder, write_adapter
from tracewheel.policy.chat_template import read_template
from tracewheel.policy.loading import load_policy_for_training, policy_renderer
from tracewheel.scoring.verifiers import make_verifier


class TrlEnvironment:
    """A task's environment as GRPOTrainer expects it: the public method besides `reset` is the tool.

    Args:
        too_long: The answer that ends an episode.
    """

    def __init__(self, too_long: str) -> None:
        self._too_long = too_long

    def reset(self, task: str, **_: Any) -> None:
        self._task = Task.from_record(json.loads(task))
        self._environment = make_environment(self._task.environment)
        self._environment.reset(self._task)
        self._done = False

    def call(self, tool: str, arguments: dict[str, Any], malformed: str) -> str:
        if self._done:
            return self._too_long
        if malformed:
            return f"error: malformed call {malformed}"
        observation = self._environment.step(tool, arguments)
        self._done = observation.done
        return self._too_long if observation.done else observation.text

    @property
    def final_state(self) -> dict[str, Any]:
        return self._environment.snapshot()

    def _reward(self) -> float:
        verifier: Any = make_verifier(self._task.verifier)
        return verifier.verify(self._task, self.final_state)[0]


def reading(renderer: ChatRenderer) -> Callable[..., dict[str, Any]]:
    """Our reading of a turn as the `parse_response` of a tokenizer. A turn that was cut off calls nothing."""

    def parse_response(ids: Sequence[int], prefix: Any = None, tools: Any = None) -> dict[str, Any]:
        ended = ids[-1] in renderer.end_of_turn_ids
        parsed = renderer.parse(renderer.decode(list(ids[:-1] if ended else ids)), tools)
        calls = [
            {"tool": call.name, "arguments": call.arguments, "malformed": call.malformed} for call in parsed.calls if ended
        ]
        called = [{"type": "function", "function": {"name": "call", "arguments": given}} for given in calls]
        return {"role": "assistant", "content": parsed.content, "tool_calls": called}

    return parse_response


def trl_tokenizer(policy: PolicyConfig) -> Any:
    """A tokenizer for GRPOTrainer, with the profile's template and our reading of turns."""
    folder = Path(base_folder(policy.base))
    tokenizer = load_tokenizer(folder)
    tokenizer.chat_template = read_template(policy.chat_template) if policy.chat_template else trl_chat_template(folder)
    tokenizer.parse_response = reading(policy_renderer(policy))
    tokenizer.response_template = {}  # GRPOTrainer parses where there is one; ours is not read
    return tokenizer


def text_of_more_than(tokens: int, tokenizer: Any) -> str:
    """A text that has more tokens: of repeated words a tokenizer may make one token."""
    text = "0"
    while len(tokenizer(text)["input_ids"]) <= tokens:
        text *= 2
    return text


def make_trainer(
    model: Any, config: RetrainConfig, tasks: list[Task], setting: dict[str, Any], out: str, callbacks: Sequence[Any] = ()
) -> Any:
    """GRPOTrainer on the tasks.

    Args:
        model: What it trains.
        config: The profile.
        tasks: The tasks to train on, all of one environment.
        setting: `episodes` of a generation, `steps` of the optimiser on them, `learning_rate`, and optionally `micro_batch`
            (episodes of one forward pass; all of a step where missing), `beta`, `temperature` and `loss_type`.
        out: A folder that it may write to.
        callbacks: Of transformers' Trainer.
    """
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    if config.rubric != RubricConfig():  # the same rewards: TRL's side knows the task's verifier alone
        raise SystemExit(
            "the profile's rubric has more than the task's verifier, and TRL's side knows nothing else: leave it out on both "
            "sides, as with --set rubric.flawed_penalty=0"
        )
    tokenizer = trl_tokenizer(config.policy)
    rows, tools, renderer = trl_rows(tasks), make_environment(tasks[0].environment).tools(), policy_renderer(config.policy)
    # Our limit counts the prompt, theirs does not.
    completion = config.rollout.max_tokens - min(len(renderer.prompt_ids(row["prompt"], tools)) for row in rows)
    too_long = text_of_more_than(completion, tokenizer)
    step = setting["episodes"] // setting["steps"]
    micro_batch = setting.get("micro_batch", step)
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=lambda environments, **_: [each._reward() for each in environments],
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(rows),
        environment_factory=lambda: TrlEnvironment(too_long),
        callbacks=list(callbacks),
        args=GRPOConfig(
            output_dir=out,
            per_device_train_batch_size=micro_batch,
            gradient_accumulation_steps=step // micro_batch,
            steps_per_generation=setting["episodes"] // micro_batch,
            num_generations=config.rollout.group_size,
            max_completion_length=completion,
            generation_kwargs={"max_new_tokens": config.rollout.max_turn_tokens},
            max_tool_calling_iterations=config.rollout.max_turns - 1,
            temperature=setting.get("temperature", config.rollout.temperature),
            learning_rate=setting["learning_rate"],
            lr_scheduler_type="constant",
            beta=setting.get("beta", 0.0),
            loss_type=setting.get("loss_type", "dapo"),
            max_grad_norm=1.0,
            max_steps=100_000,
            use_cpu=config.policy.device == "cpu",
            bf16=False,
            gradient_checkpointing=False,
            report_to="none",
            save_strategy="no",
            logging_steps=1000,
            disable_tqdm=True,
            seed=config.seed,
        ),
    )
    trainer._env_tools = {None: tools}
    return trainer


def main() -> None:
    from transformers import TrainerCallback

    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    setting = json.loads(sys.argv[2])
    race = Race(Path(sys.argv[1]), setting)
    config, tasks = race.config, load_tasks(race.curated, "train")
    with tempfile.TemporaryDirectory() as name:

        class Evaluate(TrainerCallback):
            def on_step_end(self, _: Any, state: Any, control: Any, model: Any = None, **__: Any) -> None:
                episodes = state.global_step * setting["episodes"] // setting["steps"]
                if state.global_step % setting["steps"] or not race.is_due(episodes - setting["episodes"], episodes):
                    return
                race.clock.stop()
                adapter = Path(name) / f"adapter-{state.global_step}"
                write_adapter(model, adapter, "default", config.policy.base, version=0)
                if race.evaluate(adapter, episodes):
                    control.should_training_stop = True
                race.clock.start()

        over = race.evaluate(race.state / "adapter", 0)
        model = load_policy_for_training(UpdateSections.of(config), race.state, adapter_name="default")
        trainer = make_trainer(model, config, tasks, setting, name, [Evaluate()])
        check_same_tokens(trainer, config, tasks)
        if not over:
            race.clock.start()
            trainer.train()
            race.clock.stop()
    print(race.result(), file=out, flush=True)


if __name__ == "__main__":
    main()
