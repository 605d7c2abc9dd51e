"""Terminal tasks on many files: new names, and permissions."""

from __future__ import annotations

import random
from typing import Any

from tracewheel_worlds.terminal.parts import Parts

KINDS = ("jpg", "png", "txt", "csv", "pdf")
WORDS = ("amber", "birch", "cedar", "delta", "ember", "fern", "grove", "hazel", "iris", "jade", "kelp", "lark")
PREFIXES = (("IMG", "photo"), ("DSC", "trip"), ("scan", "page"), ("doc", "draft"))
MODES = (0o600, 0o640, 0o644, 0o664, 0o666, 0o700, 0o744, 0o755, 0o777)


def rename_parts(tier: int, rng: random.Random) -> Parts:
    """Endings to lower case; another prefix; numbers of three digits; folders by year."""
    (old, new), kind = rng.choice(PREFIXES), rng.choice(KINDS)
    count = rng.randint(4, 7) + tier
    numbers = rng.sample(range(1, 100), count)
    names = {number: f"{old}_{rng.choice((2023, 2024, 2025))}_{number}.{kind}" for number in numbers}
    match tier:
        case 1:
            before = {number: name.replace(f".{kind}", f".{kind.upper()}") for number, name in names.items()}
            after = {number: name.removesuffix(kind.upper()) + kind for number, name in before.items()}
            what = f"Rename the files in `files` that end in .{kind.upper()} so that they end in .{kind}."
            step = f'mv "$f" "${{f%.{kind.upper()}}}.{kind}"'
            pattern = f"*.{kind.upper()}"
        case 2:
            before, pattern = names, f"{old}_*"
            after = {number: name.replace(f"{old}_", f"{new}-") for number, name in before.items()}
            what = f"Rename the files in `files` whose names begin with {old}_ so that they begin with {new}- instead."
            step = f'mv "$f" "{new}-${{f#{old}_}}"'
        case 3:
            before, pattern = names, f"{old}_*"
            after = {number: f"{name.rpartition('_')[0]}_{number:03}.{kind}" for number, name in before.items()}
            what = (
                f"In `files`, the names that begin with {old}_ have a number before their ending. Rename these files so that "
                "it has three digits, as in 007."
            )
            step = f'n="${{f##*_}}"; n="${{n%.{kind}}}"; m=$(printf %03d "$((10#$n))"); '
            step += f'[ "$m" = "$n" ] || mv "$f" "${{f%_*}}_$m.{kind}"'
        case _:
            before, pattern = names, f"{old}_*"
            after = {number: f"{name.split('_')[1]}/{new}_{number}.{kind}" for number, name in before.items()}
            what = (
                f"The files in `files` named {old}_YEAR_NUMBER.{kind} are to be in a folder of their year in `files`, as "
                f"YEAR/{new}_NUMBER.{kind}. Move them."
            )
            step = f'y="${{f#{old}_}}"; y="${{y%%_*}}"; mkdir -p "$y"; mv "$f" "$y/{new}_${{f##*_}}"'
    files: dict[str, Any] = {f"files/{name}": f"{rng.choice(WORDS)} {number}\n" for number, name in before.items()}
    wanted = {f"files/{after[number]}": {"text": files[f"files/{name}"]} for number, name in before.items()}
    wanted |= {path: {"absent": True} for path in files if path not in wanted}
    files |= {f"files/{word}.md": f"{word}\n" for word in rng.sample(WORDS, 2)}
    command = f"cd files && for f in {pattern}; do {step}; done"
    first = f"files/{before[numbers[0]]}"
    moved = f"files/{after[numbers[0]]}"
    near = {
        "half_done": f"({command}); mv {moved} {first}x; mv {first}x {first}"
        if moved != first
        else command.replace("done", "break; done"),
        "copied": command.replace('mv "$f"', 'cp "$f"'),
        "extra_change": f"({command}); rm files/*.md",
        "wrong_content": f"({command}); echo more >> {moved}",
    }
    return Parts(what, files, {"files": wanted}, command, near)


def modes_parts(tier: int, rng: random.Random) -> Parts:
    """Permissions of scripts; of the rest too; of keys too; by what a file holds."""
    rules = [
        ("every file that ends in .sh has the permissions 755", "find . -type f -name '*.sh' -exec chmod 755 {} +"),
        ("every other file has the permissions 644", "find . -type f ! -name '*.sh' -exec chmod 644 {} +"),
        ("but every file under `keys`, whatever its name, has 600", "find keys -type f -exec chmod 600 {} +"),
        ("and every file that holds the word secret, anywhere, has 400", "grep -rlw secret . | xargs chmod 400"),
    ]
    files: dict[str, Any] = {}
    wanted: dict[str, Any] = {}
    folders = ["bin", "etc", "keys", "share/doc"]
    for folder in folders:
        for word in rng.sample(WORDS, rng.randint(2, 4)):
            path = f"{folder}/{word}.{rng.choice(('sh', 'sh', 'txt', 'conf'))}"
            secret = rng.random() < 0.3
            mode = 0o755 if path.endswith(".sh") else 0o644 if tier >= 2 else None
            mode = 0o600 if tier >= 3 and folder == "keys" else mode
            mode = 0o400 if tier == 4 and secret else mode
            files[path] = {
                "text": f"# {'a secret' if secret else 'plain'} {word}\n",
                "mode": rng.choice([m for m in MODES if m != mode]),
            }
            if mode is not None:
                wanted[path] = {"mode": mode, "text": files[path]["text"]}
    files["bin/start.sh"] = {"text": "# plain start\n", "mode": 0o600}
    wanted["bin/start.sh"] = {"mode": 0o755, "text": "# plain start\n"}
    if tier == 4:
        files["etc/hidden.conf"] = {"text": "# a secret hidden\n", "mode": 0o666}
        wanted["etc/hidden.conf"] = {"mode": 0o400, "text": "# a secret hidden\n"}
    command = "; ".join(rule for _, rule in rules[:tier])
    what = f"Mend the permissions in this folder: {'; '.join(text for text, _ in rules[:tier])}."
    near = {
        "half_done": f"{command}; chmod 600 bin/start.sh",
        "too_much": f"{command}; chmod 777 bin/start.sh",
        "extra_change": f"{command}; echo more >> bin/start.sh",
        "wrong_place": "mkdir fixed; cp -r bin etc keys share fixed; cd fixed; " + command,
    }
    return Parts(what, files, {"files": wanted}, command, near)
