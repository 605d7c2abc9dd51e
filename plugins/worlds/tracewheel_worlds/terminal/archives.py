"""Terminal tasks on archives: unpacked wholly, in part, one within another, or where something is new."""

from __future__ import annotations

import base64
import gzip
import io
import random
import tarfile
from typing import Any

from tracewheel_worlds.terminal.parts import Parts

WORDS = ("amber", "birch", "cedar", "delta", "ember", "fern", "grove", "hazel", "iris", "jade", "kelp", "lark", "mint", "noble")
ENDINGS = ("txt", "md", "csv")
FOLDERS = ("restored", "unpacked", "data", "work")
NAMES = ("backup", "export", "archive", "bundle")


def archive_parts(tier: int, rng: random.Random) -> Parts:
    """All of an archive; only one kind of file; an archive in an archive; only files that the folder lacks."""
    name, folder, ending = f"{rng.choice(NAMES)}.tar.gz", rng.choice(FOLDERS), rng.choice(ENDINGS)
    words = rng.sample(WORDS, rng.randint(4, 6))
    inside = {
        f"{rng.choice(('a', 'b', 'a/deep'))}/{word}.{ENDINGS[number % 3]}": f"{word} {rng.randint(10, 99)}\n"
        for number, word in enumerate(words)
    }
    members: dict[str, bytes] = {path: text.encode() for path, text in inside.items()}
    files: dict[str, Any] = {"notes.txt": "keep\n"}
    wanted, made = dict(inside), f"mkdir -p {folder} && "
    match tier:
        case 1:
            what = f"Unpack `{name}` into the folder `{folder}`."
            command = f"{made}tar -xzf {name} -C {folder}"
        case 2:
            wanted = {path: text for path, text in inside.items() if path.endswith(f".{ending}")}
            what = f"Unpack only the files that end in .{ending} from `{name}` into the folder `{folder}`, with their folders."
            command = f"{made}tar -xzf {name} -C {folder} --wildcards '*.{ending}'"
        case 3:
            members = {"readme": b"see inner.tar.gz\n", "inner.tar.gz": _packed(members)}
            what = f"`{name}` holds `inner.tar.gz`. Unpack the files of that, and only those, into the folder `{folder}`."
            command = f"{made}tar -xzOf {name} inner.tar.gz | tar -xz -C {folder}"
        case _:
            known = rng.sample(sorted(inside), 2)
            files |= {f"{folder}/{path}": f"newer {rng.randint(10, 99)}\n" for path in known}
            wanted = {path: text for path, text in inside.items() if path not in known}
            what = f"Unpack `{name}` into the folder `{folder}`, but keep every file that is there already as it is."
            command = f"tar -xzf {name} -C {folder} --skip-old-files"
    files[name] = {"base64": base64.b64encode(_packed(members)).decode()}
    first = f"{folder}/{sorted(wanted)[0]}"
    near = {
        "wrong_place": command.replace(f"-C {folder}", f"-C {folder}/sub").replace(
            f"mkdir -p {folder}", f"mkdir -p {folder}/sub"
        ),
        "extra_change": f"{command}; rm {name}",
        "half_done": f"{command}; rm {first}",
        "wrong_content": f"{command}; echo more >> {first}",
    }
    if tier == 4:
        near["overwritten"] = f"tar -xzf {name} -C {folder}"
        near["wrong_place"] = f"tar -xzf {name} --skip-old-files"
    return Parts(what, files, {"files": {f"{folder}/{path}": {"text": text} for path, text in wanted.items()}}, command, near)


def _packed(members: dict[str, bytes]) -> bytes:
    """A gzipped tar archive that is the same each time."""
    plain, packed = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for path, content in sorted(members.items()):
            member = tarfile.TarInfo(path)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as file:
        file.write(plain.getvalue())
    return packed.getvalue()
