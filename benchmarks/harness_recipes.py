"""Every recipe that ships through two iterations of `tracewheel retrain`, with the real program and a scripted policy.

    python benchmarks/harness_recipes.py --tokenizer DIR --json benchmarks/results/harness_recipes.json

A project is made by `tracewheel init --harness NAME`, which also writes the caps that its probe proposes, and trained as it is;
only the numbers of tasks and episodes are smaller (`SIZES`). The base is a small model with random weights, a long window and
the tokenizer of `--tokenizer` (a folder with a Qwen-style chat template). It is computed as any model is, and its own
log-probabilities are stored, but the tokens that are taken are those of a script: three calls of tools and the answer, right in
one half of the episodes. `--sdks` trains the agents of `examples/` in the same way on the workspace with the tiny base: the
script is the task's known solution, and in one half of the episodes its first three calls and a text.

The table counts the training episodes: requests, rows (paths from the first token to a branch's last turn), turns that came
back changed (unmatched), the lowest fidelity of the two updates, the fewest tool results of an episode, and seconds of the run.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from measuring import emit, environment, machine, table

ROOT = Path(__file__).parents[1]
SIZES = {
    "curation.train_tasks": 2,
    "curation.validation_tasks": 1,
    "curation.held_out_tasks": 2,
    "training.tasks_per_iteration": 2,
    "rollout.group_size": 2,
    "evaluation.samples": 1,
    "evaluation.pass_at": "[1]",
}
SDK_SIZES = {**SIZES, "curation.harder_tasks": 0, "training.iterations": 2, "training.validate_every": 2}
SOLVED = "solved"  # plays the known solutions of the workspace
SDKS = {
    "OpenAI": ["python", "examples/openai_agent.py"],
    "Anthropic": ["python", "examples/anthropic_agent.py"],
    "OpenAI Agents": ["OWN", "examples/openai_agents_agent.py"],
    "Pydantic AI": ["OWN", "examples/pydantic_ai_agent.py"],
    "LangGraph": ["OWN", "examples/langgraph_agent.py"],
}
HEADINGS = ["program", "episodes", "requests", "turns", "unmatched", "rows", "tool results", "fidelity", "reward", "seconds"]
SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
ASKED = re.compile(r"Repeat: ([\w., ]+)")


def main() -> None:
    if sys.argv[1:2] == ["--play"]:
        sys.exit(play(sys.argv[2], sys.argv[3:]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", nargs="*", help="names (default: all whose programs are installed)")
    parser.add_argument("--programs", type=Path, default=ROOT / ".venv-harnesses", help="where `make setup-harnesses` put them")
    parser.add_argument("--tokenizer", type=Path, required=True, help="a folder, whose tokenizer.json may be compressed by xz")
    parser.add_argument("--sdks", nargs="*", choices=list(SDKS), default=[])
    parser.add_argument("--work", type=Path, default=Path("runs/harness-recipes"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures here, and the table beside it")
    arguments = parser.parse_args()
    work, programs = arguments.work.resolve(), arguments.programs.resolve()
    work.mkdir(parents=True, exist_ok=True)
    base = make_base(arguments.tokenizer, work / "base")
    names = arguments.recipes if arguments.recipes is not None else sorted(scripts())
    rows = [row for name in names if (row := trained(name, base, programs, work / name, arguments.threads))]
    rows += [trained_sdk(name, programs, work / name.replace(" ", "-"), arguments.threads) for name in arguments.sdks]
    result = {"command": " ".join(sys.argv), "machine": machine(arguments.threads), "rows": rows}
    emit(result, table(HEADINGS, [[row[key] for key in HEADINGS] for row in rows]), arguments.json)


def scripts() -> dict[str, list[str]]:
    """What a policy says to act three times and to end, by recipe: that of the recipes' tests."""
    sys.path.insert(0, str(ROOT))
    from plugins.projects.tests.test_recipes import SCRIPTS

    return SCRIPTS


def make_base(tokenizer: Path, folder: Path) -> Path:
    """A small model with random weights, a long window, and a tokenizer that was given."""
    if (folder / "model.safetensors").is_file():
        return folder
    folder.mkdir(exist_ok=True)
    for file in tokenizer.iterdir():
        if file.suffix == ".xz":
            (folder / file.stem).write_bytes(lzma.decompress(file.read_bytes()))
        elif file.suffix != ".md":
            shutil.copy(file, folder)
    import tracewheel  # noqa: F401, I001 (before torch: it sets how torch's threads wait)
    import torch
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    words = AutoTokenizer.from_pretrained(folder)
    template = json.loads((folder / "tokenizer_config.json").read_text())["chat_template"]
    (folder / "chat_template.jinja").write_text(template)
    torch.manual_seed(0)
    config = Qwen3Config(**SHAPE, head_dim=32, vocab_size=len(words), max_position_embeddings=131072, tie_word_embeddings=True)
    config.eos_token_id, config.pad_token_id, config.bos_token_id = words.eos_token_id, words.pad_token_id, None
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


def trained(name: str, base: Path, programs: Path, folder: Path, threads: int) -> dict[str, Any] | None:
    """The figures of one recipe; None where its program is not installed. A finished run is not made again."""
    variables = with_programs(name, programs, threads)
    if not (folder / "seconds.json").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        told = command(folder, variables, "init", str(folder / "agent"), "--harness", name, "--base", str(base))
        if told["problems"]:
            print(f"{name}: {'; '.join(told['problems'])}", file=sys.stderr)
            return None
        (folder / "init.json").write_text(json.dumps(told["found"]))
        began = time.perf_counter()
        command(folder / "agent", variables, *retrain(SIZES, folder), play=name)
        (folder / "seconds.json").write_text(json.dumps(time.perf_counter() - began))
    return figures(name, folder)


def trained_sdk(name: str, programs: Path, folder: Path, threads: int) -> dict[str, Any]:
    """The figures of an example's agent, on the workspace with the tiny base."""
    if not (folder / "seconds.json").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        words = [word if word != "OWN" else str(programs / "bin" / "python") for word in SDKS[name]]
        more = {"rollout.harness.command": json.dumps(words), "rollout.harness.preload": "[]"}
        began = time.perf_counter()
        words = retrain(SDK_SIZES | more, folder)
        words[1] = "configs/tiny-harness.yaml"
        command(ROOT, environment(threads), *words, play=SOLVED)
        (folder / "seconds.json").write_text(json.dumps(time.perf_counter() - began))
    return figures(name, folder)


def with_programs(name: str, programs: Path, threads: int) -> dict[str, str]:
    """The environment in which a recipe's program is found."""
    variables = environment(threads)
    own = [*programs.glob(f"{name}/bin"), *programs.glob(f"{name}/node_modules/.bin")]
    variables["PATH"] = os.pathsep.join([variables["PATH"], *map(str, own)])
    if name == "smolagents":  # a library, which is installed beside Tracewheel
        variables["PYTHONPATH"] = os.pathsep.join([str(ROOT), *map(str, programs.glob(f"{name}/lib/python*/site-packages"))])
    return variables


def retrain(sizes: dict[str, Any], folder: Path) -> list[str]:
    settings = [f"--set={key}={value}" for key, value in sizes.items()]
    return ["retrain", "profile.yaml", *settings, "--run-dir", str(folder / "run")]


def command(folder: Path, variables: dict[str, str], *words: str, play: str = "") -> Any:
    """Run a command of Tracewheel; returns what it says as JSON."""
    start = [sys.executable, str(Path(__file__).resolve()), "--play", play] if play else [sys.executable, "-m", "flows.cli"]
    done = subprocess.run([*start, *words, "--json"], stdout=subprocess.PIPE, text=True, env=variables, check=False, cwd=folder)
    if done.returncode not in (0, 3):
        sys.exit(f"{' '.join(words)} ended with {done.returncode}")
    return json.loads(done.stdout)


def play(name: str, words: list[str]) -> int:
    """Run a command with an engine that computes as always and takes the script's tokens.

    Args:
        name: Of a recipe, or `SOLVED`.
        words: The command's, with its `--run-dir`.
    """
    import torch
    from transformers import AutoTokenizer

    from flows.cli import main as run_command
    from tracewheel.engines.token_distribution import TokenDistribution
    from tracewheel.engines.transformers import TransformersEngine

    solves = name == SOLVED
    script = [""] if solves else scripts()[name]
    planned: dict[tuple[int, int], list[int]] = {}
    first: list[int] = []
    words_of = AutoTokenizer.from_pretrained(Path.cwd() / ("data/base" if solves else "base"))
    opening = words_of.encode("<|im_start|>assistant", add_special_tokens=False)
    acts = "<tool_call>" in script[0]
    solved = Solved(Path(words[words.index("--run-dir") + 1]))

    def plan(session: Any) -> list[int]:
        context = words_of.decode(session.ids)
        said = sum(session.ids[at : at + len(opening)] == opening for at in range(len(session.ids))) - 1
        if solves:  # the tiny base's tokenizer writes the opening of a turn as one token with what follows
            text = solved.turn(context, context.count("<|im_start|>assistant") - 1, whole=bool(session.number % 2))
        elif acts and "<tools>" not in context:
            text = "A title"
        else:
            first.append(said)  # an answer that a program's own prompt begins with is no turn
            turn = min(said - min(first), len(script) - 1)
            text = script[turn]
            asked = ASKED.findall(context)
            if turn == len(script) - 1 and asked:
                names = asked[-1].strip().split(", ")
                answer = ", ".join(names if session.number % 2 else names[:-1])
                text = text.replace("All done: a.txt has two lines.", answer).replace("'two'", repr(answer))
        return [*words_of.encode(text, add_special_tokens=False), words_of.eos_token_id]

    def sample(engine: Any, logits: Any, sessions: list[Any]) -> tuple[list[int], list[float]]:
        tokens = []
        for session in sessions:
            key = (session.number, session.start)
            if len(session.ids) == session.start:
                planned[key] = plan(session)
            tokens.append([planned[key][len(session.ids) - session.start]])
        temperatures = torch.tensor([[session.temperature] for session in sessions])
        taken = torch.tensor(tokens)
        return taken[:, 0].tolist(), TokenDistribution(logits, temperatures).logprobs(taken)[:, 0].tolist()

    TransformersEngine._sample = sample  # type: ignore[method-assign]
    return run_command(words)


class Solved:
    """What a policy says that knows the workspace's solutions; one that does not gives up after `GIVEN_UP` calls."""

    GIVEN_UP = 3

    def __init__(self, run: Path) -> None:
        self._run = run
        self._calls: dict[str, list[tuple[str, dict[str, str]]]] = {}

    def turn(self, context: str, said: int, whole: bool) -> str:
        """The text after so many turns."""
        if not self._calls:
            self._read()
        task = next(prompt for prompt in sorted(self._calls, key=len, reverse=True) if prompt in context)
        if not whole and said == self.GIVEN_UP:
            return "I give up."
        name, arguments = self._calls[task][said]
        return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"

    def _read(self) -> None:
        import pandas as pd

        from tracewheel.core.types import Task
        from tracewheel.environments.workspace.agent import solution

        (file,) = self._run.glob("store/curate-*/tasks.parquet")
        tasks = [Task.from_record(row) for row in pd.read_parquet(file).to_dict("records")]
        self._calls = {task.prompt: solution(task) for task in tasks}


def figures(name: str, folder: Path) -> dict[str, Any]:
    """What the training episodes of a finished run were."""
    import pandas as pd

    run = folder / "run"
    updates = [json.loads(file.read_text()) for file in sorted(run.glob("store/update-*/metrics.json"))]
    episodes = pd.concat([pd.read_parquet(file) for file in sorted(run.glob("store/rollout-*/trajectories.parquet"))])
    branches = episodes["branches"] if "branches" in episodes else ["[]"] * len(episodes)  # of a history that never parted
    results = [sum(one["role"] == "tool" for one in json.loads(messages)) for messages in episodes["messages"]]
    return {
        "program": name,
        "episodes": len(episodes),
        "requests": int(sum(update["requests"] for update in updates)),
        "turns": int(sum(len(json.loads(turns)) for turns in episodes["turns"])),
        "unmatched": int(sum(update["requests_unmatched"] for update in updates)),
        "rows": sum(len(json.loads(one) if isinstance(one, str) else []) or 1 for one in branches),
        "tool results": min(results),
        "fidelity": min(update["fidelity"] for update in updates),
        "reward": round(sum(update["reward"] for update in updates) / len(updates), 2),
        "seconds": round(json.loads((folder / "seconds.json").read_text())),
        "ended": episodes["stop_reason"].value_counts().to_dict(),
        "updates": updates,
    }


if __name__ == "__main__":
    main()
