"""Tasks of the code environment: four families in four tiers, and what their goals hold.

| family | the work | tier |
|---|---|---|
| `function` | write a function from a specification | the number of steps |
| `debug` | mend a function that does something else | the number of steps |
| `cli` | write a program that reads stdin and prints | the number of steps; from 3 on with an option |
| `etl` | write a program that makes a report of `orders.csv` | selection, dirty data, sums, a join |

The hidden inputs are drawn by a seed that follows from the rules of the task: the same task has the same tests.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from tracewheel import Task, canonical_json, content_hash
from tracewheel_worlds.code.etl import draw_files, draw_rules
from tracewheel_worlds.code.pipelines import Pipeline, draw_pipeline, draw_values
from tracewheel_worlds.code.values import encode

FAMILIES = ("function", "debug", "cli", "etl")
TIERS = (1, 2, 3, 4)
FUNCTION_CASES, PROGRAM_CASES = 20, 4
SHOWN = {"function": 3, "debug": 3, "cli": 1, "etl": 1}
NAMES = ("transform", "process", "convert", "summarize", "reshape", "digest", "refine", "compute")
OPENINGS = ("Write `{file}` with", "Create `{file}`, which has", "I need a file `{file}` with")
MENDS = ("It returns something else. Mend it.", "It has a bug; find and fix it.", "Its results are wrong. Correct it.")
LISTS = {"numbers": "a list of whole numbers", "words": "a list of words"}


def make_task(family: str, tier: int, rng: random.Random, verifier: str = "unit_tests") -> Task:
    """A random task of a family and tier."""
    while True:
        task = _etl_task(tier, rng) if family == "etl" else _pipeline_task(family, tier, rng)
        if task is not None:
            return replace(task, verifier=verifier)


def code_task(prompt: str, initial_state: dict[str, Any], goal: dict[str, Any], verifier: str = "unit_tests") -> Task:
    """Make a task from its parts; the fingerprint ignores the wording."""
    fingerprint = content_hash({"state": initial_state, "goal": goal})
    return Task(
        id=f"code-{content_hash({'prompt': prompt, 'fingerprint': fingerprint})}",
        environment="code",
        family=goal["family"],
        tier=goal["tier"],
        prompt=prompt,
        initial_state=initial_state,
        goal=goal,
        verifier=verifier,
        fingerprint=fingerprint,
    )


def function_source(name: str, lines: list[str]) -> str:
    """A file with a function whose body is these lines."""
    return "\n".join([f"def {name}(values):", *(f"    {line}" for line in lines), "    return values"]) + "\n"


def program_source(lines: list[str], option: bool) -> str:
    """A program that does these lines with the whole numbers of stdin, with the option `--last` or without."""
    begin = ["import sys", "", "values = [int(line) for line in sys.stdin.read().split()]", *lines]
    if option:
        begin += [
            "if '--last' in sys.argv:",
            "    count = int(sys.argv[sys.argv.index('--last') + 1])",
            "    values = values[-count:]",
        ]
    return "\n".join([*begin, "for value in values:", "    print(value)"]) + "\n"


def _pipeline_task(family: str, tier: int, rng: random.Random) -> Task | None:
    domain = "numbers" if family == "cli" else rng.choice(("numbers", "words"))
    steps = draw_pipeline(domain, tier, rng, results=1 if family == "cli" else None)
    wrong = rng.randrange(tier)
    seed = {"family": family, "steps": steps.lines(), "wrong": wrong if family == "debug" else None}
    own = random.Random(f"code-{canonical_json(seed)}")
    name = own.choice(NAMES)
    values = [draw_values(domain, own) for _ in range(FUNCTION_CASES * 4)]
    values = [value for number, value in enumerate(values) if value not in values[:number]]
    longest = [value for value in values if len(value) > 3]
    shown = SHOWN[family]
    inputs = [*longest[:shown], *(value for value in values if value not in longest[:shown])]
    inputs = inputs[: PROGRAM_CASES if family == "cli" else FUNCTION_CASES]
    hidden = inputs[1::2] if family == "cli" else inputs[shown:]  # those without `--last`, which may hide a difference
    if not _tells(steps, hidden, wrong) or (family == "debug" and not _tells_one(steps, inputs[:shown], wrong)):
        return None
    if family == "cli":
        return _cli_task(tier, steps, inputs, own, rng)
    goal = {
        "family": family,
        "tier": tier,
        "form": "function",
        "file": "solution.py",
        "function": name,
        "types": "strict",
        "cases": [{"args": [encode(value)], "expected": encode(steps.run(value))} for value in inputs],
        "shown": shown,
        "solution": function_source(name, steps.lines()),
        "near_misses": {"half_done": function_source(name, steps.lines(without=tier - 1))},
    }
    files = {"solution.py": function_source(name, steps.lines(wrong=wrong))} if family == "debug" else {}
    examples = "\n".join(f"{name}({value!r}) returns {steps.run(value)!r}" for value in inputs[:shown])
    what = f"a function `{name}(values)` that takes {LISTS[domain]} and does this, in order: {steps.text}."
    if family == "debug":
        prompt = f"`solution.py` should have {what} {rng.choice(MENDS)}\nExamples of what is right:\n{examples}"
    else:
        prompt = f"{rng.choice(OPENINGS).format(file='solution.py')} {what}\nExamples:\n{examples}"
    return code_task(prompt, {"files": files}, goal)


def _cli_task(tier: int, steps: Pipeline, inputs: list[list[int]], own: random.Random, rng: random.Random) -> Task:
    option = tier >= 3
    cases: list[dict[str, Any]] = []
    for number, values in enumerate(inputs):
        count = own.randint(1, 3) if option and number % 2 == 0 else 0
        found = steps.run(values)[-count:] if count else steps.run(values)
        cases.append(
            {
                "args": ["--last", str(count)] if count else [],
                "stdin": "".join(f"{value}\n" for value in values),
                "files": {},
                "stdout": "".join(f"{value}\n" for value in found),
                "outputs": {},
            }
        )
    goal = {
        "family": "cli",
        "tier": tier,
        "form": "program",
        "file": "tool.py",
        "cases": cases,
        "shown": SHOWN["cli"],
        "solution": program_source(steps.lines(), option),
        "near_misses": {"half_done": program_source(steps.lines(without=tier - 1), option)},
    }
    first = cases[0]
    more = " With the option `--last N` it prints only the last N of them." if option else ""
    called = " ".join(["python3 tool.py", *first["args"]])
    prompt = (
        f"{rng.choice(OPENINGS).format(file='tool.py')} a program that reads whole numbers from standard input, one a "
        f"line, and does this, in order: {steps.text.replace('return the list', 'print each number on a line')}.{more}\n"
        f"Example: `{called}` with the input {first['stdin'].split()} prints the lines {first['stdout'].split()}."
    )
    return code_task(prompt, {"files": {}}, goal)


def _etl_task(tier: int, rng: random.Random) -> Task:
    rules = draw_rules(tier, rng)
    own = random.Random(f"code-etl-{canonical_json(rules.key())}")
    inputs = [draw_files(rules, own) for _ in range(PROGRAM_CASES)]
    form = rules.output.rpartition(".")[2]
    near = {"half_done": rules.source(least=False), "wrong_order": rules.source(ordered=False)}
    near |= {"wrong_type": rules.source(whole=False)} if rules.columns else {}
    cases: list[dict[str, Any]] = [
        {
            "args": [],
            "stdin": "",
            "files": files,
            "stdout": None,
            "outputs": {rules.output: {"format": form, "expected": rules.result(files)}},
        }
        for files in inputs
    ]
    goal = {
        "family": "etl",
        "tier": tier,
        "form": "program",
        "file": "etl.py",
        "cases": cases,
        "shown": SHOWN["etl"],
        "solution": rules.source(),
        "near_misses": {name: source for name, source in near.items() if any(map(rules.differs(source), inputs))},
    }
    prompt = (
        f"{rng.choice(OPENINGS).format(file='etl.py')} a program for this. {rules.text} All files are in the working folder."
    )
    return code_task(prompt, {"files": inputs[0]}, goal)


def _tells(steps: Pipeline, inputs: list[list[Any]], wrong: int) -> bool:
    """Whether inputs tell the steps from the chain without its last step, from a wrong one, and from a constant."""
    right = [_key(steps.run(value)) for value in inputs]
    half = [_key(steps.run(value, without=len(steps.steps) - 2)) for value in inputs]
    return len(set(right)) > max(1, len(inputs) // 3) and right != half and _tells_one(steps, inputs, wrong)


def _tells_one(steps: Pipeline, inputs: list[list[Any]], wrong: int) -> bool:
    return any(_attempt(steps, value, wrong) != _key(steps.run(value)) for value in inputs)


def _attempt(steps: Pipeline, value: list[Any], wrong: int) -> str:
    try:
        return _key(steps.run(value, wrong=wrong))
    except (TypeError, ValueError, ZeroDivisionError):
        return "an error"


def _key(value: Any) -> str:
    """A result as text; equal for equal results, so without the order of a dict."""
    return repr(sorted(value.items())) if isinstance(value, dict) else repr(value)
