"""`tracewheel forget` of five people leaves none of their bytes: a search that shares no code with its own finds nothing.

    python benchmarks/forget_bytes.py init --work DIR                       # the project of `tracewheel init`: a minute
    python benchmarks/forget_bytes.py configs/tiny-short.yaml --work DIR    # the demo's project, in a copy: two minutes
    python benchmarks/forget_bytes.py configs/tiny-short.yaml --work DIR --nights 3    # a deployment's: logs that come by night

Words that nobody else has are planted in the logs: in names, sessions, ids, requests, replies and a torn line. After the last
run `serve` has logged conversations of theirs, too. Then all files of the work folder and of MLflow's store are searched, as
raw bytes and laid open (Parquet with token ids decoded, archives, databases), before and after.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from lineage_search import laid_open

ROOT = Path(__file__).parents[1]
PEOPLE, EACH = (3, 11, 20, 21, 30), 2
SMALL = ("training.iterations=1", "training.tasks_per_iteration=4", "warm_start.epochs=1")
WORDS = re.compile(rb"(?:person|sitting|spoken|Zyxthorpe|Quobble|Vexbroken)-?(\d+)q")


def planted(lines: list[bytes], begin: int) -> list[bytes]:
    """Log lines, `EACH` by one person, with words of that person's own."""
    found = []
    for number, line in enumerate(lines, begin):
        try:
            record, person = json.loads(line), number // EACH
            asked = next(message for message in record["messages"] if message["role"] == "user")
            said = next(message for message in record["messages"] if message["role"] == "assistant")
        except (ValueError, LookupError, TypeError, StopIteration):  # the demo's logs have broken lines
            continue
        record |= {"id": f"spoken-{number}-{person}q", "user": f"person-{person}q", "session": f"sitting-{person}q"}
        asked["content"] += f" Regards from the Zyxthorpe{person}q estate."
        said["content"] = f"Ok, Quobble{person}q"
        found.append(json.dumps(record).encode() + b"\n")
    return found


def prepare(source: str, work: Path) -> tuple[Path, list[bytes]]:
    """The profile in a project of its own, and the logs' lines; the logs are empty yet."""
    if source == "init":
        command(work.parent, "init", work.name)
        profile = work / "profile.yaml"
        logs = sorted((work / "logs").glob("*.jsonl"))
        lines = [line for log in logs for line in log.read_bytes().splitlines()]
        for log in logs:
            log.unlink()
    else:
        work.mkdir(parents=True)
        settings = yaml.safe_load((ROOT / source).read_text())
        lines = (ROOT / settings["ingest"]["paths"][0]).read_bytes().splitlines()[:400]
        shutil.copytree(ROOT / "data" / "base", work / "data" / "base")
        settings["ingest"]["paths"] = ["logs"]
        settings["tracking"]["uri"] = "sqlite:///mlflow/mlflow.db"
        profile = work / "profile.yaml"
        profile.write_text(yaml.safe_dump(settings))
    (work / "logs").mkdir(exist_ok=True)
    return profile, lines


def command(folder: Path, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    """What `tracewheel` says."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from flows.cli import main; sys.exit(main(sys.argv[1:]))", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode in codes, (arguments, done.returncode, done.stderr[-3000:])
    return done.stdout


def serve_some(work: Path) -> None:
    """What `serve` logs of two of them and of somebody else, with replies in the shadow, and a file that a kill has torn."""
    from tracewheel.gateway.conversation_log import SERVED_FOLDER, ConversationLog

    folder = work / "runs" / SERVED_FOLDER
    log, shadow = ConversationLog(folder), ConversationLog(folder / "shadow", "replies")
    for person in (3, 20, 999):
        said = [{"role": "user", "content": f"Hi, Zyxthorpe{person}q"}, {"role": "assistant", "content": "ok"}]
        record = {"id": f"spoken-{person}q", "user": f"person-{person}q", "messages": said, "format": "tracewheel"}
        log.write(record)
        shadow.write({"conversation": record["id"], "sent": said[1], "shadow": {"content": f"Quobble{person}q"}})
    log.close()
    with next(folder.glob("*.jsonl")).open("ab") as torn:
        torn.write(b'{"user": "person-21q", "messages": [{"role": "user", "content": "Vexbroken21q')


def search(work: Path, decode: Any, without: Path | None = None) -> tuple[dict[str, list[str]], int]:
    """File to the words of theirs in it, and the number of files."""
    found, files = {}, 0
    for path in sorted(work.rglob("*")):
        if not path.is_file() or path.is_symlink() or (without and without in path.parents):
            continue
        files += 1
        pieces = [path.read_bytes(), *(text.encode("utf-8", "replace") for text in laid_open(path, decode))]
        words = {match.group().decode() for piece in pieces for match in WORDS.finditer(piece) if int(match[1]) in PEOPLE}
        if words:
            found[str(path.relative_to(work))] = sorted(words)
    return found, files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="`init`, or a profile of the demo")
    parser.add_argument("--work", type=Path, required=True, help="made, and must not be there")
    parser.add_argument("--nights", type=int, default=1, help="runs, each on further logs")
    options = parser.parse_args()
    work = options.work.resolve()
    profile, lines = prepare(options.source, work)
    share = -(-len(lines) // options.nights)
    for night in range(options.nights):
        some = planted(lines[night * share : (night + 1) * share], night * share)
        torn = b'{"user": "person-21q", "messages": [{"role": "user", "content": "Vexbroken21q\n'
        (work / "logs" / f"night-{night}.jsonl").write_bytes(b"".join([*some, torn]))
        sets = [word for setting in SMALL for word in ("--set", setting)]
        command(work, "retrain", profile.name, *sets, codes=(0, 3))
    serve_some(work)
    from transformers import AutoTokenizer

    base = work / yaml.safe_load(profile.read_text())["policy"]["base"]
    decode = AutoTokenizer.from_pretrained(base).decode
    before, _ = search(work, decode, work / "logs")
    people = [word for person in PEOPLE for word in ("--user", f"person-{person}q")]
    done = json.loads(command(work, "forget", profile.name, *people, "--yes", "--json"))["done"]
    after, files = search(work, decode, work / "logs")
    command(work, "lineage", profile.name, "person-999q", codes=(2,))
    command(work, "forget", profile.name, *people, "--yes", "--rewrite-logs")
    logs, _ = search(work, decode)
    own = "".join(path.read_text() for path in (work / "runs" / "serving").rglob("*.jsonl"))
    print(
        json.dumps(
            {
                "files_before": len(before),
                "kinds_before": sorted({Path(name).suffix for name in before}),
                "entries_deleted": done["entries_deleted"],
                "mlflow_traces_deleted": done["mlflow_traces_deleted"],
                "files_searched": files,
                "after": after,
                "after_rewriting_logs": logs,
                "served_of_others": own.count("spoken-999q"),
            },
            indent=1,
        )
    )
    assert before and not after and not logs and own.count("spoken-999q") == 2


if __name__ == "__main__":
    main()
