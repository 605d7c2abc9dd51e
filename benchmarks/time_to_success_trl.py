"""TRL's side of benchmarks/time_to_success.py: GRPOTrainer with `environment_factory`.

To let TRL do its best, prompts and observations equal, token by token, those that the warm start
knows (our tools' schemas, our texts for a wrong call); a turn is cut at `max_turn_tokens` as ours is; a finished
episode ends at once. GRPOTrainer has no way to express that, so the answer to `finish` is longer than the rest of the
completion, and for such an answer it leaves the conversation as it was.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from rollouts_workload import trl_chat_template
from time_to_success_sides import EPISODES, Race

from tracewheel.config import UpdateSections
from tracewheel.core.types import Task
from tracewheel.curation.curated_folder import load_tasks
from tracewheel.environments.workspace.environment import SYSTEM_PROMPT, TOOLS, WorkspaceEnvironment
from tracewheel.policy.adapters import write_adapter
from tracewheel.policy.loading import load_policy_for_training
from tracewheel.scoring.verifiers.workspace import WorkspaceVerifier


class TrlWorkspace:
    """The workspace as GRPOTrainer expects it: public methods are tools. Unknown tools answer as ours do."""

    def reset(self, task: str, too_long: int, **_: Any) -> None:
        self._task, self._too_long = Task.from_record(json.loads(task)), too_long
        self._environment = WorkspaceEnvironment()
        self._environment.reset(self._task)
        self._done = False

    def _step(self, tool: str, arguments: dict[str, Any]) -> str:
        if self._done:
            return "x" * self._too_long
        observation = self._environment.step(tool, arguments)
        self._done = observation.done
        return "x" * self._too_long if observation.done else observation.text

    def _reward(self) -> float:
        return WorkspaceVerifier().verify(self._task, self._environment.snapshot())[0]


def _tool(name: str) -> Any:
    def tool(self: TrlWorkspace, **arguments: Any) -> str:
        return self._step(name, arguments)

    tool.__name__ = name
    tool.__doc__ = "A tool of the workspace."
    return tool


NAMES = [tool["function"]["name"] for tool in TOOLS]
for _name in (*NAMES, "search_files", "delete_file", "copy_file"):
    setattr(TrlWorkspace, _name, _tool(_name))


def main() -> None:
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer
    from trl.chat_template_utils import qwen3_template

    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    setting = json.loads(sys.argv[2])
    race = Race(Path(sys.argv[1]), setting)
    config = race.config
    rows = [
        {
            "prompt": [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": task.prompt}],
            "task": json.dumps(task.to_record()),
            "too_long": config.rollout.max_tokens,
        }
        for task in load_tasks(race.curated, "train")
    ]
    base = Path(config.policy.base)
    tokenizer = AutoTokenizer.from_pretrained(base, chat_template=trl_chat_template(base))
    tokenizer.response_template = qwen3_template
    steps_an_evaluation = EPISODES // setting["episodes"] * setting["steps"]
    with tempfile.TemporaryDirectory() as name:

        class Evaluate(TrainerCallback):
            def on_step_end(self, _: Any, state: Any, control: Any, model: Any = None, **__: Any) -> None:
                if state.global_step % steps_an_evaluation:
                    return
                race.clock.stop()
                adapter = Path(name) / f"adapter-{state.global_step}"
                write_adapter(model, adapter, "default", config.policy.base, version=0)
                if race.evaluate(adapter, state.global_step // setting["steps"] * setting["episodes"]):
                    control.should_training_stop = True
                race.clock.start()

        over = race.evaluate(race.state / "adapter", 0)
        trainer = GRPOTrainer(
            model=load_policy_for_training(UpdateSections.of(config), race.state, adapter_name="default"),
            reward_funcs=lambda environments, **_: [each._reward() for each in environments],
            processing_class=tokenizer,
            train_dataset=Dataset.from_list(rows),
            environment_factory=TrlWorkspace,
            callbacks=[Evaluate()],
            args=GRPOConfig(
                output_dir=name,
                per_device_train_batch_size=setting["episodes"] // setting["steps"],
                steps_per_generation=setting["steps"],
                num_generations=config.rollout.group_size,
                max_completion_length=config.rollout.max_tokens - 1,
                generation_kwargs={"max_new_tokens": config.rollout.max_turn_tokens},
                max_tool_calling_iterations=config.rollout.max_turns - 1,
                temperature=setting.get("temperature", config.rollout.temperature),
                learning_rate=setting["learning_rate"],
                lr_scheduler_type="constant",
                beta=setting.get("beta", 0.0),
                loss_type=setting.get("loss_type", "dapo"),
                max_grad_norm=1.0,
                max_steps=100_000,
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                report_to="none",
                save_strategy="no",
                logging_steps=1000,
                disable_tqdm=True,
                seed=config.seed,
            ),
        )
        trainer._env_tools = {None: TOOLS}
        if not over:
            race.clock.start()
            trainer.train()
            race.clock.stop()
    print(race.result(), file=out, flush=True)


if __name__ == "__main__":
    main()
