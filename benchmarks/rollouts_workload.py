"""The workload of the rollouts' benchmark: a policy that generates a script, an environment, tasks.

The policy has the tiny base's tokenizer and architecture, so a pass costs the same. Its weights let each token decide the
next one: an ordinary checkpoint that every engine loads. Each turn is the same call, `CALL`; the environment sets the
number of turns.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracewheel.core.types import Task
from tracewheel.environments.base import Observation
from tracewheel.environments.workspace.environment import SYSTEM_PROMPT, TOOLS

CALL = ("move_file", {"source": "/inbox/inv1.log", "destination": "/archive"})
SURE = 40.0  # the scripted token's logit; the others' are near 0
NAMES = ("inv2", ".log", "\n", "memo2", ".txt", "\n", "scan3", ".pdf", "\n")


@dataclass(frozen=True)
class Workload:
    """`concurrency` episodes at once in groups of `group`; `observation` tokens of text come back after a call."""

    turns: int = 8
    group: int = 8
    concurrency: int = 64
    observation: int = 8
    seed: int = 0

    @property
    def max_tokens(self) -> int:
        """Room for a whole episode."""
        return 32 + self.turns * (12 + self.observation)


class ChainEnvironment:
    """Answers a call with the task's text, and ends the episode at the task's last turn."""

    kind = "rollouts_workload:ChainEnvironment"
    system_prompt = SYSTEM_PROMPT

    def tools(self) -> list[dict[str, Any]]:
        return TOOLS

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        raise ValueError("the benchmark's tasks come from no log")

    def reset(self, task: Task) -> None:
        self._state = task.initial_state
        self._calls = 0

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        if (tool, args) != CALL:
            return Observation(f"error: no tool named {tool}", error=True)
        self._calls += 1
        return Observation(self._state["text"], done=self._calls == self._state["turns"])

    def snapshot(self) -> dict[str, Any]:
        return {"calls": self._calls}


def tasks(workload: Workload) -> list[Task]:
    """One task a group, each with a prompt of its own."""
    text = "".join(NAMES[index % len(NAMES)] for index in range(workload.observation))
    made = []
    for number in range(workload.concurrency // workload.group):
        prompt = f"Move the files named in /list.txt from /inbox to /archive, then write /archive/inv{1 + number % 5}.log"
        made.append(
            Task(
                id=f"chain-{workload.seed}-{number}",
                environment=ChainEnvironment.kind,
                family="chain",
                tier=1,
                prompt=prompt,
                initial_state={"turns": workload.turns, "text": text},
                goal={},
                verifier="workspace",
                fingerprint=f"chain-{number}",
            )
        )
    return made


def write_policy(base: Path, out: Path) -> None:
    """Write the scripted policy: the base's shape with an output layer of its own.

    Layers add next to nothing to the embedding, so the last hidden state identifies the token that was read. The output
    layer is then solved for: the scripted next token gets the logit `SURE`, every other token 0.
    """
    import torch
    from transformers import AutoModelForCausalLM

    from tracewheel.policy.loading import load_renderer

    renderer = load_renderer(str(base), "hermes")
    name, arguments = CALL
    call = {"type": "function", "function": {"name": name, "arguments": arguments}}
    script = renderer.assistant_ids({"role": "assistant", "content": "", "tool_calls": [call]})
    if len(set(script)) != len(script):
        raise ValueError("the script needs a call whose tokens are all different")
    opening = renderer.prompt_ids([{"role": "user", "content": "probe"}], TOOLS)[-1]
    after = renderer.observation_ids([{"role": "tool", "content": "ok"}])[-1]
    follows = {opening: script[0], after: script[0], script[-1]: script[0]} | dict(itertools.pairwise(script))
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, tie_word_embeddings=False)
    with torch.no_grad():
        embedding = model.get_input_embeddings().weight
        embedding.normal_()
        embedding /= embedding.square().mean(-1, keepdim=True).sqrt()
        model.base_model.norm.weight.fill_(1.0)
        for layer in model.base_model.layers:
            layer.self_attn.o_proj.weight.mul_(1e-3)
            layer.mlp.down_proj.weight.mul_(1e-3)
        read = list(follows)
        wanted = torch.zeros(len(read), model.config.vocab_size)
        wanted[torch.arange(len(read)), torch.tensor([follows[token] for token in read])] = SURE
        model.lm_head.weight = torch.nn.Parameter((torch.linalg.pinv(embedding[read]) @ wanted).T.contiguous())
    model.config.tie_word_embeddings = False
    model.save_pretrained(out)
    for file in base.glob("*token*"):
        (out / file.name).write_bytes(file.read_bytes())
    (out / "chat_template.jinja").write_bytes((base / "chat_template.jinja").read_bytes())


def trl_chat_template(base: Path) -> str:
    """The base's chat template as GRPOTrainer needs it: the same text, but an assistant turn ends with its end token.

    The newline after it goes to the message that follows, or the tokenizer would join the two and the
    template would not keep prefixes. The tools are the environment's, in its order.
    """
    template = (base / "chat_template.jinja").read_text()
    ending = "{%- endgeneration %}\n        {{- '\\n' -}}".replace("%}", "-%}", 1)
    opening = "{{- '<|im_start|>user' -}}"
    if template.count(ending) != 1 or template.count(opening) != 1:
        raise ValueError("the base's chat template has changed; see trl_chat_template")
    template = template.replace(ending, "{%- endgeneration -%}").replace(opening, "{{- '\\n<|im_start|>user' -}}")
    return f"{{%- if tools -%}}{{%- set tools = {json.dumps(TOOLS)} -%}}{{%- endif -%}}" + template
