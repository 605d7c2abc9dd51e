"""Small terminal tasks of eight families, each with a careful way to do it and a hasty one that is right by luck alone.

The hasty way suffices in `LUCK` of the tasks, and nothing in the request says in which: a count of lines that also counts
longer words, the second column whatever the table's head says, a replacement that takes the first place of each line.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

Files = dict[str, str]
LUCK = 0.3
WORDS = (
    "amber", "birch", "cedar", "ember", "fern", "hazel", "iris", "jade", "kelp", "lark", "mint", "olive", "pearl", "quartz",
    "robin", "sage", "topaz", "violet", "willow", "zinc",
)  # fmt: skip
STEMS = (
    "notes", "memo", "plan", "draft", "diary", "visits", "trips", "guests", "orders", "stock", "items", "people", "sales",
    "report", "budget", "letters",
)  # fmt: skip
ENDINGS, OUTS, FOLDERS = ("txt", "md", "log"), ("answer", "result", "found", "output"), ("done", "kept", "picked", "archive")
COLUMNS = ("price", "count", "weight", "age", "score")


@dataclass(frozen=True)
class Way:
    """A way to do a task: whether it looks at what is there first, the command, and the files after it."""

    looks: bool
    command: str
    after: Files


@dataclass(frozen=True)
class Work:
    """A task and the ways to do it; `look` and `check` are the commands before and after."""

    family: str
    prompt: str
    files: Files
    careful: Way
    hasty: Way
    look: str
    check: str

    @property
    def goal(self) -> dict[str, dict[str, object]]:
        """What each file that the careful way changes is to be."""
        after = self.careful.after
        changed = {path for path in {*self.files, *after} if self.files.get(path) != after.get(path)}
        return {path: {"text": after[path]} if path in after else {"absent": True} for path in sorted(changed)}


def _names(rng: random.Random, count: int, ending: str = "txt") -> list[str]:
    return [f"{stem}.{ending}" for stem in sorted(rng.sample(STEMS, count))]


def _text(rng: random.Random, words: list[str], lines: int) -> list[list[str]]:
    return [[rng.choice(words) for _ in range(rng.randint(1, 3))] for _ in range(lines)]


def _joined(lines: list[list[str]]) -> str:
    return "".join(" ".join(line) + "\n" for line in lines)


def _others(rng: random.Random, *words: str) -> list[str]:
    return [word for word in WORDS if word not in words]


def _out(rng: random.Random) -> str:
    return f"{rng.choice(OUTS)}.txt"


def count(rng: random.Random) -> Work:
    """Lines with a word: `grep -c` alone also counts longer words."""
    names, word, out = _names(rng, 2), rng.choice(WORDS), _out(rng)
    lines = _text(rng, _others(rng, word), rng.randint(2, 4))
    for line in rng.sample(lines, rng.randint(1, len(lines))):
        line[rng.randrange(len(line))] = word
    if rng.random() > LUCK:
        lines.insert(rng.randrange(len(lines) + 1), [rng.choice(_others(rng, word)), f"{word}s"])
    files = {names[0]: _joined(_text(rng, [*WORDS], 2)), names[1]: _joined(_text(rng, [*WORDS], 2))}
    name = rng.choice(names)
    files[name] = _joined(lines)
    exact = sum(word in line for line in lines)
    loose = sum(word in " ".join(line) for line in lines)
    return Work(
        "count",
        f"Write how many lines of {name} have the word {word} to {out}.",
        files,
        Way(True, f"grep -cw {word} {name} > {out}", {**files, out: f"{exact}\n"}),
        Way(True, f"grep -c {word} {name} > {out}", {**files, out: f"{loose}\n"}),
        f"cat {name}",
        f"cat {out}",
    )


def _with_word(rng: random.Random, names: list[str], word: str, have: list[str]) -> Files:
    """Texts, some of which have a word; unless luck will have it, one more has a longer one."""
    files = {}
    longer = rng.choice([name for name in names if name not in have]) if rng.random() > LUCK else ""
    for name in names:
        lines = _text(rng, _others(rng, word), 2)
        line = rng.choice(lines)
        if name in have or name == longer:
            line[rng.randrange(len(line))] = f"{word}s" if name == longer else word
        files[name] = _joined(lines)
    return files


def find(rng: random.Random) -> Work:
    """The file with a word: `grep -l` alone also finds longer words."""
    names, word, out = _names(rng, 3), rng.choice(WORDS), _out(rng)
    have = [rng.choice(names)]
    files = _with_word(rng, names, word, have)
    loose = [name for name in names if word in files[name]]
    return Work(
        "find",
        f"Write the name of the file that has the word {word} to {out}.",
        files,
        Way(True, f"grep -lw {word} *.txt > {out}", {**files, out: f"{have[0]}\n"}),
        Way(True, f"grep -l {word} *.txt > {out}", {**files, out: "".join(f"{name}\n" for name in loose)}),
        f"grep {word} *.txt",
        f"cat {out}",
    )


def move(rng: random.Random) -> Work:
    """Files with a word into a folder."""
    names, word, folder = _names(rng, 3), rng.choice(WORDS), rng.choice(FOLDERS)
    have = sorted(rng.sample(names, rng.randint(1, 2)))
    files = _with_word(rng, names, word, have)
    loose = [name for name in names if word in files[name]]

    def moved(chosen: list[str]) -> Files:
        return {f"{folder}/{name}" if name in chosen else name: text for name, text in files.items()}

    return Work(
        "move",
        f"Move the files that have the word {word} to {folder}.",
        files,
        Way(True, f"mkdir -p {folder} && mv $(grep -lw {word} *.txt) {folder}", moved(have)),
        Way(True, f"mkdir -p {folder} && mv $(grep -l {word} *.txt) {folder}", moved(loose)),
        f"grep {word} *.txt",
        f"ls {folder}",
    )


def replace(rng: random.Random) -> Work:
    """A word by another: without `g`, `sed` takes the first place of each line."""
    names, (old, new) = _names(rng, 2), rng.sample(WORDS, 2)
    name = rng.choice(names)
    lines = _text(rng, _others(rng, old, new), rng.randint(2, 4))
    line = rng.choice(lines)
    line[rng.randrange(len(line))] = old
    if rng.random() > LUCK:
        line.append(old) if old in line[:1] else line.insert(0, old)
    files = {one: _joined(_text(rng, [*WORDS], 2)) for one in names} | {name: _joined(lines)}
    first = "".join(" ".join(line).replace(old, new, 1) + "\n" for line in lines)
    return Work(
        "replace",
        f"Replace every {old} in {name} with {new}.",
        files,
        Way(True, f"sed -i 's/{old}/{new}/g' {name}", {**files, name: files[name].replace(old, new)}),
        Way(True, f"sed -i 's/{old}/{new}/' {name}", {**files, name: first}),
        f"cat {name}",
        f"cat {name}",
    )


def unique(rng: random.Random) -> Work:
    """The distinct lines: `sort` alone keeps copies."""
    names, out = _names(rng, 2), _out(rng)
    name, lines = rng.choice(names), rng.sample(WORDS, rng.randint(3, 5))
    if rng.random() > LUCK:
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
    files = {one: _joined(_text(rng, [*WORDS], 2)) for one in names} | {name: "".join(f"{line}\n" for line in lines)}
    return Work(
        "unique",
        f"Write the distinct lines of {name} in order to {out}.",
        files,
        Way(True, f"sort -u {name} > {out}", {**files, out: "".join(f"{line}\n" for line in sorted(set(lines)))}),
        Way(True, f"sort {name} > {out}", {**files, out: "".join(f"{line}\n" for line in sorted(lines))}),
        f"cat {name}",
        f"cat {out}",
    )


def _table(rng: random.Random) -> tuple[list[str], list[list[str]], int]:
    """Head, rows, and the place of the column that is asked for, from 1; by luck the second."""
    head = ["name", *rng.sample(COLUMNS, 3)]
    rows = [[word, *(str(rng.randint(2, 49)) for _ in range(3))] for word in rng.sample(WORDS, rng.randint(2, 3))]
    return head, rows, 2 if rng.random() < LUCK else rng.choice((3, 4))


def _csv(head: list[str], rows: list[list[str]]) -> str:
    return "".join(",".join(row) + "\n" for row in [head, *rows])


def total(rng: random.Random) -> Work:
    """The sum of a column, whose place the head says."""
    names, out = _names(rng, 2, "csv"), _out(rng)
    name, (head, rows, place) = rng.choice(names), _table(rng)
    files = {one: _csv(*_table(rng)[:2]) for one in names} | {name: _csv(head, rows)}

    def summed(column: int) -> Way:
        said = f"{sum(int(row[column - 1]) for row in rows)}\n"
        return Way(column == place, f"awk -F, '{{s+=${column}}} END {{print s}}' {name} > {out}", {**files, out: said})

    prompt = f"Write the sum of the column {head[place - 1]} of {name} to {out}."
    hasty = Way(False, summed(2).command, summed(2).after)
    return Work("total", prompt, files, summed(place), hasty, f"cat {name}", f"cat {out}")


def column(rng: random.Random) -> Work:
    """The values of a column without its head."""
    names, out = _names(rng, 2, "csv"), _out(rng)
    name, (head, rows, place) = rng.choice(names), _table(rng)
    files = {one: _csv(*_table(rng)[:2]) for one in names} | {name: _csv(head, rows)}

    def cut(column: int) -> Way:
        said = "".join(f"{row[column - 1]}\n" for row in rows)
        return Way(column == place, f"tail -n +2 {name} | cut -d, -f{column} > {out}", {**files, out: said})

    prompt = f"Write the values of the column {head[place - 1]} of {name} to {out}."
    hasty = Way(False, cut(2).command, cut(2).after)
    return Work("column", prompt, files, cut(place), hasty, f"cat {name}", f"cat {out}")


def rename(rng: random.Random) -> Work:
    """Another ending for all files of one: by hand only the first gets it."""
    old, new = rng.sample(ENDINGS, 2)
    stems = sorted(rng.sample(STEMS, 4))
    chosen = sorted(rng.sample(stems, 1 if rng.random() < LUCK else rng.randint(2, 3)))
    files = {f"{stem}.{old if stem in chosen else 'csv'}": _joined(_text(rng, [*WORDS], 1)) for stem in stems}

    def renamed(which: list[str]) -> Files:
        return {f"{path.split('.')[0]}.{new}" if path.split(".")[0] in which else path: text for path, text in files.items()}

    return Work(
        "rename",
        f"Rename every .{old} file so that it ends in .{new}.",
        files,
        Way(False, f"for f in *.{old}; do mv $f ${{f%.{old}}}.{new}; done", renamed(chosen)),
        Way(False, f"mv {chosen[0]}.{old} {chosen[0]}.{new}", renamed(chosen[:1])),
        "ls",
        "ls",
    )


FAMILIES: dict[str, Callable[[random.Random], Work]] = {
    "count": count,
    "find": find,
    "move": move,
    "replace": replace,
    "unique": unique,
    "total": total,
    "column": column,
    "rename": rename,
}
FRAGMENTS = (
    "grep -cw |grep -c |grep -lw |grep -l |grep | *.txt > | *.txt) | *.txt| > |sed -i 's/|/g' |/' |sort -u |sort |cat |ls|ls |"
    "awk -F, '{s+=$|} END {print s}' |tail -n +2 | | cut -d, -f|mkdir -p | && mv $(|for f in *.|; do mv $f ${f%.|}.|; done|mv |"
    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT|Write how many lines of | have the word | to |"
    "Write the name of the file that has the word |Move the files that have the word |Replace every | in | with |"
    "Write the distinct lines of | in order to |Write the sum of the column | of |Write the values of the column |"
    "Rename every .| file so that it ends in .|name,"
)
