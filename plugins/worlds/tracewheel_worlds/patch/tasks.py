"""Tasks of the patch environment: small packages with planted bugs.

| family | the bug | tier | modules | bugs |
|---|---|---|---|---|
| `boundary` | off by one, a limit on the wrong side | 1 | 2 to 3 | 1 |
| `condition` | a wrong operator or condition | 2 | 4 to 5 | 1 |
| `missing_case` | a case that is not handled | 3 | 4 to 5 | 2 |
| `interplay` | one function or module misunderstands another | 4 | 5 to 6 | 3 |

The family is that of the first bug. Hidden checks are calls with random arguments: what they give with the right source is the
goal, and stays with the verifier.
"""

from __future__ import annotations

import random
from typing import Any

from tracewheel import ConfigError, Task, canonical_json, content_hash
from tracewheel_worlds.patch.library import FAMILIES, MODULES, Bug, Module
from tracewheel_worlds.patch.loading import Package

TIERS = (1, 2, 3, 4)
SIZES = {1: (2, 3), 2: (4, 5), 3: (4, 5), 4: (5, 6)}
PLACES = {1: 1, 2: 1, 3: 2, 4: 3}
PACKAGES = ("atlas", "basil", "cedar", "delta", "ember", "fjord", "grove", "haven", "iris", "jetty", "kelp", "larch")
CHECKS_OF_EACH = 6  # random calls of each function
FAILING = 3  # of which so many must fail with the bug, beside the one that the agent sees
DRAWN = 40
KEPT = 2  # visible cases of each function that pass already
ATTEMPTS = 200

Check = dict[str, Any]


def make_tasks(n: int, seed: int) -> list[Task]:
    """`n` different tasks, families and tiers in turn.

    Raises:
        ConfigError: there are not that many different tasks.
    """
    rng = random.Random(f"patch-{seed}")
    made: dict[str, Task] = {}
    for number in range(ATTEMPTS + 4 * n):
        if len(made) == n:
            break
        place = len(made)
        task = make_task(FAMILIES[place % 4], TIERS[place // 4 % 4], random.Random(f"{rng.random()}-{number}"))
        if task is not None:
            made.setdefault(task.fingerprint, task)
    if len(made) < n:
        raise ConfigError(f"the patch environment has fewer than {n} different tasks")
    return list(made.values())


def make_task(family: str, tier: int, rng: random.Random) -> Task | None:
    """A random task; None where the drawn bugs cannot be told apart from right code by random calls."""
    bugs = _bugs(family, PLACES[tier], rng)
    modules = _modules({module.name for module, _ in bugs}, rng.randint(*SIZES[tier]), rng)
    package = rng.choice(PACKAGES)
    right = {_path(package, module): module.source.replace("PACKAGE", package) for module in modules}
    broken, edits = dict(right), []
    for module, bug in bugs:
        path = _path(package, module)
        broken[path] = broken[path].replace(bug.right, bug.wrong, 1)
    for module, bug in bugs:
        edits.append(_edit(_path(package, module), right, broken, bug))
    drawn = _drawn(package, modules, rng)
    good, bad = Package(right), Package(broken)
    checks = [{**check, "expected": good.outcome(**check)} for check in drawn]
    wrong = [check for check in checks if bad.outcome(check["call"], check["args"]) != check["expected"]]
    shown, kept = [], []
    for module, bug in bugs:
        own = _own_checks(wrong, package, module, bug, right)
        told = _told(own)
        if told is None or len(own) <= FAILING:
            return None
        shown.append(told)
        kept += [check for check in own if check is not told][:FAILING]
    hidden = _hidden(checks, wrong, kept, shown)
    passing = [check for check in checks if check not in wrong and check not in hidden]
    files = {f"{package}/__init__.py": f'"""The package {package}."""\n', **broken, **_tests(package, modules, passing, shown)}
    goal = {
        "family": family,
        "tier": tier,
        "checks": hidden,
        "shown": shown,
        "edits": edits,
        "protected": sorted(path for path in files if path.startswith("tests/")),
    }
    issues = "\n".join(f"- {bug.issue} For example, {_said(check, bad)}" for (_, bug), check in zip(bugs, shown, strict=True))
    many = "these bugs are" if len(bugs) > 1 else "this bug is"
    prompt = f"In the package `{package}`, {many} reported:\n{issues}\nFix the package."
    return patch_task(prompt, dict(sorted(files.items())), goal)


def patch_task(prompt: str, files: dict[str, str], goal: dict[str, Any], test_command: list[str] | None = None) -> Task:
    """Make a task from its parts.

    Args:
        prompt: The issue.
        files: The repository's text files by path.
        goal: Family and tier, and what the verifier `patch_tests` checks.
        test_command: Runs the visible tests.
    """
    state = {
        "files": files,
        "test_command": test_command or ["python3", "-m", "unittest", "discover", "-s", "tests", "-t", "."],
    }
    fingerprint = content_hash({"files": files, "goal": goal})
    return Task(
        id=f"patch-{content_hash({'prompt': prompt, 'fingerprint': fingerprint})}",
        environment="patch",
        family=goal["family"],
        tier=goal["tier"],
        prompt=prompt,
        initial_state=state,
        goal=goal,
        verifier="patch_tests",
        fingerprint=fingerprint,
    )


def _bugs(family: str, count: int, rng: random.Random) -> list[tuple[Module, Bug]]:
    """Bugs in different modules, the first of the family."""
    pairs = [(module, bug) for module in MODULES.values() for bug in module.bugs]
    found = [rng.choice([pair for pair in pairs if pair[1].family == family])]
    while len(found) < count:
        pair = rng.choice(pairs)
        if pair[0] not in [module for module, _ in found]:
            found.append(pair)
    return found


def _modules(needed: set[str], count: int, rng: random.Random) -> list[Module]:
    """The needed modules, what they import, and others."""
    chosen = set(needed)
    while True:
        chosen |= {other for name in chosen for other in MODULES[name].imports}
        if len(chosen) >= count:
            return [MODULES[name] for name in sorted(chosen)]
        chosen.add(rng.choice(sorted(set(MODULES) - chosen)))


def _path(package: str, module: Module) -> str:
    return f"{package}/{module.name}.py"


def _edit(path: str, right: dict[str, str], broken: dict[str, str], bug: Bug) -> dict[str, str]:
    """The edit that takes a bug out: whole lines around it, so that the old text is found once."""
    before, after = broken[path].splitlines(keepends=True), right[path].splitlines(keepends=True)
    first = next(place for place, line in enumerate(after) if place >= len(before) or before[place] != line)
    last = 0
    while last < min(len(before), len(after)) - first and before[-1 - last] == after[-1 - last]:
        last += 1
    while True:
        old, new = "".join(before[first : len(before) - last]), "".join(after[first : len(after) - last])
        if old and broken[path].count(old) == 1:
            return {"path": path, "old": old, "new": new}
        first = max(0, first - 1)


def _drawn(package: str, modules: list[Module], rng: random.Random) -> list[Check]:
    """Different random calls of all functions."""
    drawn: dict[str, Check] = {}
    for module in modules:
        for function, inputs in module.inputs.items():
            for _ in range(DRAWN):
                args = [list(one) if isinstance(one, tuple) else one for one in inputs(rng)]
                check = {"call": f"{package}.{module.name}:{function}", "args": args}
                drawn[canonical_json(check)] = check
    return list(drawn.values())


def _own_checks(wrong: list[Check], package: str, module: Module, bug: Bug, right: dict[str, str]) -> list[Check]:
    """The checks of a bug's own module that find it where it is the only one."""
    path = _path(package, module)
    alone = Package({**right, path: right[path].replace(bug.right, bug.wrong, 1)})
    own = [check for check in wrong if check["call"].startswith(f"{package}.{module.name}:")]
    return [check for check in own if alone.outcome(check["call"], check["args"]) != check["expected"]]


def _told(own: list[Check]) -> Check | None:
    """The check that the issue tells: its function is wrong for other arguments too, or its one case would be the whole bug."""
    calls = [check["call"] for check in own]
    return next((check for check in own if calls.count(check["call"]) > 1), None)


def _hidden(checks: list[Check], wrong: list[Check], kept: list[Check], shown: list[Check]) -> list[Check]:
    """Checks of all functions: those that find the bugs first."""
    counts: dict[str, int] = {}
    hidden = []
    for check in [*kept, *(one for one in wrong if one not in kept), *(one for one in checks if one not in wrong)]:
        count = counts.get(check["call"], 0)
        if check not in shown and (count < CHECKS_OF_EACH or check in kept):
            hidden.append(check)
            counts[check["call"]] = count + 1
    return hidden


def _said(check: Check, bad: Package) -> str:
    """What a call gives, and what it should."""
    now, wanted = bad.outcome(check["call"], check["args"]), check["expected"]
    return f"`{_call(check)}` {_gives(now)}; it should {_give(wanted)}."


def _call(check: Check) -> str:
    return f"{check['call'].partition(':')[2]}({', '.join(map(repr, check['args']))})"


def _gives(outcome: dict[str, Any]) -> str:
    return f"raises {outcome['raises']}" if "raises" in outcome else f"gives `{outcome['value']!r}`"


def _give(outcome: dict[str, Any]) -> str:
    return f"raise {outcome['raises']}" if "raises" in outcome else f"give `{outcome['value']!r}`"


def _tests(package: str, modules: list[Module], passing: list[Check], shown: list[Check]) -> dict[str, str]:
    """The visible tests: some cases that pass, and the cases of the issue."""
    files = {"tests/__init__.py": ""}
    for module in modules:
        name = f"{package}.{module.name}"
        text = (
            f"import unittest\n\nfrom {package} import {module.name}\n\n\nclass Test{module.name.title()}(unittest.TestCase):\n"
        )
        for function in module.inputs:
            own = [check for check in passing if check["call"] == f"{name}:{function}"][:KEPT]
            own += [check for check in shown if check["call"] == f"{name}:{function}"]
            text += f"    def test_{function}(self):\n" + "".join(_case(check, module.name) for check in own)
            text += "        return\n" if not own else ""
            text += "\n"
        files[f"tests/test_{module.name}.py"] = text.rstrip("\n") + "\n"
    return files


def _case(check: Check, module: str) -> str:
    call, wanted = f"{module}.{_call(check)}", check["expected"]
    if "raises" in wanted:
        return f"        with self.assertRaises({wanted['raises']}):\n            {call}\n"
    return f"        self.assertEqual({call}, {wanted['value']!r})\n"
