"""Terminal tasks that ask for a shell script, which is tried on folders that the agent has not seen."""

from __future__ import annotations

import random
from typing import Any

from tracewheel_worlds.terminal.parts import Parts

WORDS = ("amber", "birch", "cedar", "delta", "ember", "fern", "grove", "hazel", "iris", "jade", "kelp", "lark")
ENDINGS = ("log", "txt", "csv", "md")
NAMES = ("count.sh", "report.sh", "stats.sh", "tally.sh")
TREES = 4
# Runs in a box with the final files: makes each folder, runs the script on it, and says what it printed.
CHECK = """
import json, os, subprocess, sys
given = json.load(sys.stdin)
said = []
for number, tree in enumerate(given["trees"]):
    folder = f"/tmp/tree{number}"
    for path, text in tree.items():
        os.makedirs(os.path.dirname(f"{folder}/{path}"), exist_ok=True)
        with open(f"{folder}/{path}", "w") as file:
            file.write(text)
    try:
        run = subprocess.run(["/bin/bash", given["script"], folder], capture_output=True, timeout=5, stdin=subprocess.DEVNULL)
        said.append(run.stdout[:10000].decode(errors="replace").strip() if run.returncode == 0 else None)
    except subprocess.TimeoutExpired:
        said.append(None)
print(json.dumps(said))
"""


def script_parts(tier: int, rng: random.Random) -> Parts:
    """How many files of a kind; the same with all folders below; their lines; the one with most lines."""
    ending, name = rng.choice(ENDINGS), rng.choice(NAMES)
    least = rng.randint(2, 5)
    trees: list[dict[str, str]] = []
    expected: list[str] = []
    while len(set(expected)) < TREES - 1:  # one answer for most folders would pass without looking
        trees = [_tree(ending, rng) for _ in range(TREES)]
        expected = [_answer(tier, ending, least, tree) for tree in trees]
    which = f"files that end in .{ending}"
    tests = f"-type f -name '*.{ending}'"
    match tier:
        case 1:
            says = f"how many {which} are directly in FOLDER"
            body = f'find "$1" -maxdepth 1 {tests} | wc -l'
            half = f'find "$1" {tests} | wc -l'
        case 2:
            says = f"how many {which} are in FOLDER and all folders below"
            body, half = f'find "$1" {tests} | wc -l', f'find "$1" -maxdepth 1 {tests} | wc -l'
        case 3:
            says = f"how many lines all {which} in FOLDER and below have together that are of at least {least} characters"
            body = f"find \"$1\" {tests} -exec cat {{}} + | grep -cE '^.{{{least},}}$' || true"
            half = f'find "$1" {tests} -exec cat {{}} + | wc -l'
        case _:
            says = (
                f"the name (without folders) of the one with most lines among the {which} in FOLDER and below; of equal ones "
                "the first in alphabetical order"
            )
            loop = 'while read -r f; do echo "$(wc -l < "$f") $(basename "$f")"; done'
            body = f"find \"$1\" {tests} | {loop} | sort -k1,1nr -k2,2 | head -n 1 | cut -d' ' -f2"
            half = body.replace("-k1,1nr", "-k1,1n")
    example = {f"example/{path}": text for path, text in trees[0].items()}
    prompt = f"Write a shell script `{name}` so that `bash {name} FOLDER` prints {says}. "
    prompt += f"`bash {name} example` is to print {expected[0]}."
    check = {"script": CHECK, "given": {"script": f"/box/{name}", "trees": trees}, "expected": expected}
    near = {
        "wrong_place": _write(f"bin/{name}", body),
        "half_done": _write(name, half),
        "hard_coded": _write(name, f"echo {expected[0]}"),
        "for_the_example_alone": _write(name, body.replace('"$1"', "example")),
    }
    return Parts(prompt, dict(example), {"check": check}, _write(name, body), near)


def _write(path: str, body: str) -> str:
    folder = f"mkdir -p {path.rpartition('/')[0]}; " if "/" in path else ""
    return f"{folder}cat > {path} <<'END'\n{body}\nEND"


def _tree(ending: str, rng: random.Random) -> dict[str, str]:
    """A folder with files of some kinds; some lie directly in it, others below."""
    tree: dict[str, Any] = {}
    for number, word in enumerate(rng.sample(WORDS, rng.randint(6, 9))):
        folder = ("", "sub/", "sub/deep/", "")[number % 4]
        kind = ending if number < 4 or rng.random() < 0.4 else rng.choice(ENDINGS)
        lines = [rng.choice(WORDS)[: rng.randint(1, 6)] for _ in range(rng.randint(1, 9))]
        tree[f"{folder}{word}.{kind}"] = "".join(f"{line}\n" for line in lines)
    return tree


def _answer(tier: int, ending: str, least: int, tree: dict[str, str]) -> str:
    chosen = {path: text.splitlines() for path, text in tree.items() if path.endswith(f".{ending}")}
    match tier:
        case 1:
            return str(sum("/" not in path for path in chosen))
        case 2:
            return str(len(chosen))
        case 3:
            return str(sum(len(line) >= least for lines in chosen.values() for line in lines))
    return min(chosen, key=lambda path: (-len(chosen[path]), path.rpartition("/")[2])).rpartition("/")[2]
