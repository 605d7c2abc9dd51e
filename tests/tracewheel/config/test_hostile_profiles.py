"""A hundred profiles whose data sections are mutated: each is refused by key or read, and none runs or writes anything.

`python test_hostile_profiles.py FOLDER` reads them under an audit hook, in a process of its own, and prints what it did.
"""

import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from tests.tracewheel.mutations import hostile_kind, mutated
from tracewheel.config import load_config, load_stored_config
from tracewheel.core.errors import TracewheelError
from tracewheel.environments import make_environment
from tracewheel.traces.ingest import ingest

ROOT = Path(__file__).parents[3]
PROFILES, SEED, MOST_SECONDS = 100, 44, 20
RUNS = ("subprocess.Popen", "os.exec", "os.system", "os.posix_spawn", "socket.connect", "pty.spawn")


def hostile_profiles(log):
    drawn = random.Random(SEED)
    base = yaml.safe_load((ROOT / "configs/tiny-short.yaml").read_text())
    sections = {
        "ingest": {"paths": [str(log)], "redaction": {}, "readers": []},
        "environment": {"kind": "workspace", "args": {}},
    }
    sections["curation"] = base.get("curation", {}) | {"min_attempts": 1}
    for number in range(PROFILES):
        changed = mutated(sections, drawn)
        if number % 4 == 0:
            changed = sections | drawn.choice(
                ({"environment": hostile_kind(drawn)}, {"ingest": {"paths": [str(log)], "readers": [hostile_kind(drawn)]}})
            )
        yield base | (changed if isinstance(changed, dict) else {"ingest": changed})


def read(profile, folder):
    """What came of a profile: read by the user, and as the profile of a stored run."""
    folder.mkdir()
    for name in ("config.yaml", "profile.yaml"):
        (folder / name).write_text(yaml.safe_dump(json.loads(json.dumps(profile, default=str).replace("\\ud83d", "?"))))
    with contextlib.suppress(TracewheelError):
        make_environment(load_stored_config(folder).environment.spec)
    try:
        config = load_config(folder / "profile.yaml")
        make_environment(config.environment.spec)
        (folder / "out").mkdir()
        ingest(config.ingest, folder / "out")
    except TracewheelError as error:
        return f"refused: {error}"
    return "read"


def main(folder):
    log = folder / "log.jsonl"
    with (ROOT / "data/traces/workspace.jsonl").open() as lines:
        log.write_text("".join(line for line, _ in zip(lines, range(30), strict=False)))
    read(next(hostile_profiles(log)) | {"ingest": {"paths": [str(log)]}, "environment": {"kind": "workspace"}}, folder / "warm")
    wheels = {f"tracewheel_{path.name}" for path in (ROOT / "plugins").iterdir()}
    known = {name.partition(".")[0] for name in sys.modules} | {*sys.stdlib_module_names, "stdnum", "phonenumbers", *wheels}
    allowed, done = (str(folder), "/dev/null", tempfile.gettempdir()), []

    def watch(event, arguments):
        if event == "import" and str(arguments[0]).partition(".")[0] not in known:
            done.append(f"import {arguments[0]}")
        elif event in RUNS:
            done.append(f"{event} {arguments!r:.200}")
        elif event == "open" and isinstance(arguments[0], str) and isinstance(arguments[2], int):
            writes = arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            done.extend([f"open {arguments[0]}"] if writes and not arguments[0].startswith(allowed) else [])

    sys.addaudithook(watch)
    ends, longest = [], 0.0
    for number, profile in enumerate(hostile_profiles(log)):
        began = time.monotonic()
        ends.append(read(profile, folder / str(number)))
        longest = max(longest, time.monotonic() - began)
    said = {"done": list(done), "ends": ends, "longest": longest}  # before printing opens anything
    print(json.dumps(said))


def test_no_profile_runs_imports_or_writes_and_none_ends_the_batch(tmp_path):
    command, variables = [sys.executable, __file__, str(tmp_path)], os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=variables, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["done"] == [] and len(said["ends"]) == PROFILES and said["longest"] < MOST_SECONDS
    assert 5 < sum(end == "read" for end in said["ends"]) < PROFILES - 20
    assert not list(tmp_path.rglob("pwned"))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
