"""Why a run that was made again parts from the first, as far as it is known: code, packages, machine, data."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tracewheel import setting_differences
from tracewheel_lab.reproduce.checkout import PACKAGE, is_commit

SHOWN = 12


def changed_code(commit: str, files: Iterable[Path]) -> list[str]:
    """The functions of a stage's code that are not those of a commit, as `file: names`; comments and docstrings do not count.

    Args:
        commit: The commit of the first run.
        files: Those that the stage's key is made of.
    """
    root = PACKAGE.parent
    changed = _git(root, "diff", "--name-only", commit, "--", "*.py") if is_commit(commit) else None
    added = _git(root, "ls-files", "--others", "--exclude-standard", "--", "*.py")
    if changed is None:
        return []
    names = {*changed.splitlines(), *(added or "").splitlines()}
    said = []
    for path in sorted({path.relative_to(root).as_posix() for path in files if path.is_relative_to(root)} & names):
        before = _git(root, "show", f"{commit}:{path}")
        functions = changed_definitions(before or "", (root / path).read_text(encoding="utf-8"))
        if functions:
            said.append(f"{path}: {', '.join(functions[:SHOWN])}")
    return said


def changed_definitions(before: str, after: str) -> list[str]:
    """The functions, methods and classes that differ between two versions of a module; "the module" for what is in none."""
    one, two = (_definitions(ast.parse(text)) for text in (before, after))
    return [name for name in dict.fromkeys([*two, *one]) if one.get(name) != two.get(name)]


def _definitions(tree: ast.Module) -> dict[str, str]:
    """The code of each function and method, of each class without its methods, and of the rest of the module."""
    found: dict[str, str] = {}

    def walk(body: list[ast.stmt], prefix: str) -> list[ast.stmt]:
        rest: list[ast.stmt] = []
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                node.body = _without_docstring(node.body)
                found[f"{prefix}{node.name}"] = ast.dump(node)
            elif isinstance(node, ast.ClassDef):
                node.body = walk(_without_docstring(node.body), f"{prefix}{node.name}.")
                found[f"{prefix}{node.name}"] = ast.dump(node)
            else:
                rest.append(node)
        return rest

    found["the module"] = ast.dump(ast.Module(walk(_without_docstring(tree.body), ""), []))
    return found


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    match body:
        case [ast.Expr(ast.Constant(str())), *rest]:
            return rest
    return body


def environment_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What of packages and machine differs between two lineages, each as `name before → after`; unknown where one is silent."""
    said = []
    for part in ("packages", "machine"):
        one, two = before.get(part), after.get(part)
        if not one or not two:
            if not one:
                said.append(f"{part}: the run, of an earlier version, did not record it")
            continue
        if part == "machine":
            names = ("kind", "python", "threads", "variables")
            one, two = ({name: values.get(name) for name in names} for values in (one, two))
        said += [f"{part}: {row['name']} {row['values'][0]} → {row['values'][1]}" for row in setting_differences([one, two])]
    return said


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
