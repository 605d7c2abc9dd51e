"""The bridge to the datasets of reasoning-gym. Runs in a Python with `reasoning-gym`; tried with 0.1.25.

A task is named by dataset, tier and seed, and made again where it is needed, so that its answer stays here. Several of
the project's scorers evaluate the answer as Python. Here they read literals, and what is to be read as a formula is checked
first. An answer is scored in a process of its own, for it may make the scorer hang or take all memory.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import random
import re
import resource
import select
import signal
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

SIZE = 10  # some datasets deal their kinds of questions out over the size
MAKE_SECONDS = 15.0
LATE = f"a task takes longer than {MAKE_SECONDS:g} s"
SCORE_SECONDS = 10.0
MEMORY = 4 << 30
EMPTY = (None, "", " ", "?")
# Some have no `answer`, but a worked one beside it.
WORKED = ("possible_answer", "example_correct_answer", "example_answer")
SEVERAL_RIGHT = ("graph_color", "n_queens", "propositional_logic")  # another task's answer may be right too
# Of benchmarks/results/reasoning_gym.json, and too rare for a check of a few.
LENIENT = {"figlet_font": "hedged scores 1 (1 of 20 tasks)", "propositional_logic": "hedged scores 1 (2 of 60 tasks)"}
NUMBERS_ONLY = ("countdown", "puzzle24")
FORMULAS = ("intermediate_integration", "polynomial_multiplication", "simple_integration", *NUMBERS_ONLY)
FUNCTIONS = frozenset(("sin", "cos", "tan", "exp", "log", "sqrt", "asin", "acos", "atan", "sinh", "cosh", "tanh"))
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
PLAIN = re.compile(r"[A-Za-z0-9\s+\-*/().]+", re.ASCII)
NO_FORMULA = re.compile(r"\.\s*[A-Za-z]|[\d.][A-Za-z]", re.ASCII)  # attributes; 0x10, 1e9


class World:
    """Tasks and scores. It serves many episodes, for nothing of one is kept."""

    def names(self) -> list[str]:
        """The datasets that the project has."""
        from reasoning_gym.factory import DATASETS

        return sorted(DATASETS)

    def check(self, dataset: str, tiers: list[int], count: int) -> dict[str, Any]:
        """Which of the tiers a dataset has, why it is refused, and which wrong answer its scorer takes for right; or ""."""
        said: dict[str, Any] = {"tiers": [], "refused": "", "lenient": LENIENT.get(dataset, "")}
        try:
            levels, wrong, late = _levels(dataset), "", 0
            for tier in (tier for tier in tiers if tier <= levels):
                try:
                    _dataset(dataset, tier, 0)
                except Exception as error:  # a level that its own configuration refuses
                    wrong = f"tier {tier}: {type(error).__name__}: {error}"
                else:
                    said["tiers"].append(tier)
            said["refused"] = "" if said["tiers"] else wrong or "it has none of the tiers"
            starts = [{"dataset": dataset, "tier": tier, "seed": seed} for tier in said["tiers"] for seed in range(count)]
            for start in starts:
                place = f"(tier {start['tier']}, seed {start['seed']})"
                wrong = _wrong(start)
                if wrong == LATE:  # a slow task is left out, and no others with it
                    late += 1
                    if late < len(starts):
                        continue
                if wrong := wrong or (start["seed"] == 0 and _changes(start)):
                    return said | {"refused": f"{wrong} {place}"}
                if taken := next((way for way, text in _misses(start).items() if _accepts(start, text)), ""):
                    said["lenient"] = said["lenient"] or f"{taken} scores 1 {place}"
        except Exception as error:  # the project's code may fail in any way
            said["refused"] = f"{type(error).__name__}: {error}"[:300]
        return said

    def make(self, start: dict[str, Any], longest: int) -> str | None:
        """The question of a task; None where its own answer is not worth 1, or is longer than an answer may be."""
        if _wrong(start):
            return None
        entry = _entry(**start)[1]
        return str(entry["question"]) if len(_own(entry)) <= longest else None

    def solution(self, start: dict[str, Any], prompt: str) -> str:
        """The dataset's answer."""
        return _own(_known(start, prompt)[1])

    def misses(self, start: dict[str, Any], prompt: str) -> dict[str, str]:
        """Wrong answers that hold the right one, or that are right for another task; by what is wrong."""
        _known(start, prompt)
        return _misses(start)

    def score(self, start: dict[str, Any], prompt: str, answer: str) -> dict[str, Any]:
        """What an answer is worth to the dataset, 0 to 1; `error` where the scorer came to no end."""
        dataset, entry = _known(start, prompt)
        if (own := _own_score(start)) != 1.0:
            raise ValueError(
                f"dataset {start['dataset']}: its own answer scores {own}, not 1, so that it says nothing of others"
            )
        if not answer.strip():
            return {"score": 0.0, "error": ""}
        return _apart(lambda: _score(start["dataset"], dataset, answer, entry))


def _known(start: dict[str, Any], prompt: str) -> tuple[Any, dict[str, Any]]:
    dataset, entry = _entry(**start)
    if entry["question"] != prompt:
        raise ValueError(f"dataset {start['dataset']} asks something else here than in the task: another version made it")
    return dataset, entry


def _own(entry: dict[str, Any]) -> str:
    """The answer that the dataset gives, as text; "" where there is none."""
    worked = (entry["metadata"].get(name) for name in WORKED)
    answer = next((one for one in (entry["answer"], *worked) if one is not None), "")
    return answer if isinstance(answer, str) else json.dumps(answer)


def _wrong(start: dict[str, Any]) -> str:
    """Why the task is of no use, or ""."""
    return _in_time(lambda: _fault(start), LATE)


def _fault(start: dict[str, Any]) -> str:
    own = _own(_entry(**start)[1])
    if not own.strip():
        return "it has no answer of its own"
    if (score := _own_score(start)) != 1.0:
        return f"its own answer scores {score:g}"
    taken = next((empty for empty in EMPTY if _accepts(start, empty)), own)
    return "" if taken == own else f"{taken!r} scores 1"


def _changes(start: dict[str, Any]) -> str:
    (first, again) = (_fresh(**start)[1] for _ in range(2))
    same = first["question"] == again["question"] and _own(first) == _own(again)
    return "" if same else "the same seed gives another question or answer"


class _Late(BaseException):
    """Not an `Exception`, for the project's code catches those."""


def _in_time(work: Callable[[], Any], otherwise: Any) -> Any:
    """The result of `work`, or `otherwise` where it takes too long."""

    def late(*_: Any) -> None:
        raise _Late

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, MAKE_SECONDS)
    try:
        return work()
    except _Late:
        return otherwise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _misses(start: dict[str, Any]) -> dict[str, str]:
    own, other = _own(_entry(**start)[1]), _in_time(lambda: _other(start), None)
    found = {"no_number": NUMBER.sub("NaN", own)} if NUMBER.search(own) else {}
    if other is not None:
        found |= {"hedged": f"{own} or {other}", "hedged_before": f"{other} or {own}"}
        found |= {"of_another_task": other} if start["dataset"] not in SEVERAL_RIGHT else {}
    return found


def _other(start: dict[str, Any]) -> str | None:
    """Another answer, of a task that comes after; None where a few of them have the same."""
    own, seed = _own(_entry(**start)[1]), start["seed"]
    others = (_own(_entry(**(start | {"seed": seed + step}))[1]) for step in range(1, 6))
    return next((text for text in others if text.strip() and text != own), None)


def _accepts(start: dict[str, Any], answer: Any) -> bool:
    dataset, entry = _entry(**start)
    try:
        return _score(start["dataset"], dataset, answer, entry) == 1.0
    except Exception:  # a scorer that raises accepts nothing
        return False


def _own_score(start: dict[str, Any]) -> float:
    dataset, entry = _entry(**start)
    return _score(start["dataset"], dataset, _own(entry), entry)


def _score(name: str, dataset: Any, answer: str | None, entry: dict[str, Any]) -> float:
    if name in FORMULAS and not is_formula(answer or "", numbers_only=name in NUMBERS_ONLY):
        return 0.0
    _seed(0)
    return float(dataset.score_answer(answer, entry))


def is_formula(text: str, numbers_only: bool) -> bool:
    """Whether a text is a plain formula: numbers, operators and brackets, and else letters and well-known functions."""
    if not PLAIN.fullmatch(text) or NO_FORMULA.search(text):
        return False
    words = WORD.findall(text)
    if numbers_only:
        return not words and "**" not in text and "//" not in text
    return all(word in FUNCTIONS or (len(word) == 1 and (word.islower() or word in "CEXYZ")) for word in words)


@lru_cache(maxsize=32)
def _entry(dataset: str, tier: int, seed: int) -> tuple[Any, dict[str, Any]]:
    return _fresh(dataset, tier, seed)


def _fresh(dataset: str, tier: int, seed: int) -> tuple[Any, dict[str, Any]]:
    """A dataset and its first entry. Some draw from the global generators, so these are seeded too."""
    _seed(seed)
    made = _dataset(dataset, tier, seed)
    return made, made[0]


def _dataset(name: str, tier: int, seed: int) -> Any:
    from reasoning_gym.factory import create_curriculum, create_dataset, has_curriculum

    if not has_curriculum(name):
        return create_dataset(name, seed=seed, size=SIZE)
    curriculum = create_curriculum(name)
    curriculum.set_global_level(tier - 1)
    made = _type(name)(config=curriculum.generate_configuration({"seed": seed, "size": SIZE}))
    _read_literals(made)
    return made


def _levels(name: str) -> int:
    """How many levels a dataset's curriculum has; 1 without one."""
    from reasoning_gym.factory import create_curriculum, has_curriculum

    _type(name)
    levels = [len(one.levels) for one in create_curriculum(name).attributes.values()] if has_curriculum(name) else []
    return max(levels, default=1)


def _type(name: str) -> Any:
    from reasoning_gym.factory import DATASETS

    if name not in DATASETS:
        raise KeyError("the project has no such dataset")
    return DATASETS[name][0]


def _read_literals(dataset: Any) -> None:
    """Have the dataset's module read literals where it would evaluate an answer."""
    module = sys.modules[type(dataset).__module__]
    if module.__name__.rpartition(".")[2] in (
        "binary_matrix",
        "n_queens",
        "number_sorting",
        "spiral_matrix",
        "string_insertion",
    ):
        module.eval = ast.literal_eval  # type: ignore[attr-defined]


def _seed(seed: int) -> None:
    import numpy

    random.seed(seed)
    numpy.random.seed(seed)


def _apart(score: Any) -> dict[str, Any]:
    """A score worked out in a process of its own, within limits. An answer on which the scorer fails is worth 0."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(out)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            os.write(into, json.dumps({"score": score(), "error": ""}).encode())
        except BaseException as error:  # the project's code may fail in any way
            os.write(into, json.dumps({"score": 0.0, "error": type(error).__name__}).encode())
        finally:
            os._exit(0)
    os.close(into)
    try:
        ready, _, _ = select.select([out], [], [], SCORE_SECONDS)
        said = os.read(out, 65536) if ready else b""
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(out)
    return json.loads(said) if said else {"score": 0.0, "error": f"no score after {SCORE_SECONDS:g} s, or it crashed"}
