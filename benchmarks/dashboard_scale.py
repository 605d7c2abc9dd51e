"""Times the dashboard over many runs: server time of each page, memory, and what the digests cost.

The runs are the two shipped ones, copied with new ids and varied words: about 1,070 episodes each. They are deleted afterwards.

    python benchmarks/dashboard_scale.py --runs 1000 --browser
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tracewheel.core.processes import free_port
from tracewheel.dashboard.digests import FOLDER, Digests
from tracewheel.dashboard.library import RUN_ID, Library, unpack_demo

ROWS = 72  # of each rollout: nine groups of eight
PAINTED = """() => new Promise(done => new PerformanceObserver(list => {
    const paint = list.getEntriesByName("first-contentful-paint")[0];
    if (paint) done(paint.startTime);
}).observe({type: "paint", buffered: true}))"""
Paint = Callable[[str, int], str]
SHARED = ("ingest", "curate", "champion")
WORDS = ("urgent", "inbox", "manifest", "vault", "report", "queue")


def make_runs(work: Path, out: Path, count: int) -> int:
    """Copies of the runs in a work folder; returns the number of their episodes."""
    runs = [path for path in sorted(work.iterdir()) if RUN_ID.fullmatch(path.name) and (path / "lineage.json").is_file()]
    store = out / "store"
    (store / ".facts").mkdir(parents=True)
    for entry in (work / "store").iterdir():
        if entry.is_dir() and entry.name.startswith(SHARED):
            shutil.copytree(entry, store / entry.name)
            shutil.copy(work / "store" / ".facts" / f"{entry.name}.json", store / ".facts")
    return sum(_copy_run(runs[number % len(runs)], out, number) for number in range(count))


def _copy_run(run: Path, out: Path, number: int) -> int:
    new = _digest(f"{run.name}{number}", 12)
    names = {name: _renamed(name, number) for name in (run / "entries.txt").read_text().split()}
    pattern = re.compile("|".join([*map(re.escape, names), run.name]))
    (out / new).mkdir()
    started = f"2026-{1 + number // 28 % 12:02}-{1 + number % 28:02}T{number % 24:02}:00:00+00:00"
    for file in run.iterdir():
        if file.suffix in (".json", ".txt", ".yaml"):
            text = pattern.sub(lambda found: names.get(found.group(), new), file.read_text())
            text = re.sub(r'("started": ")[^"]*', rf"\g<1>{started}", text) if file.name == "lineage.json" else text
            (out / new / file.name).write_text(text)
        elif file.is_file():
            os.link(file, out / new / file.name)
    episodes = 0
    for old, name in names.items():
        facts = run.parent / "store" / ".facts" / f"{old}.json"
        if old.startswith(SHARED) or not facts.is_file():
            continue
        (out / "store" / ".facts" / f"{name}.json").write_text(
            pattern.sub(lambda found: names.get(found.group(), new), facts.read_text())
        )
        for file in (run.parent / "store" / old).rglob("*"):
            if file.is_dir() or file.suffix == ".safetensors":
                continue
            target = out / "store" / name / file.relative_to(run.parent / "store" / old)
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.name in ("trajectories.parquet", "scores.parquet"):
                episodes += _copy_table(file, target, number)
            else:
                os.link(file, target)
    return episodes


def _copy_table(file: Path, target: Path, number: int) -> int:
    table = _read(file)
    column = "id" if "id" in table.column_names else "trajectory_id"
    mark = f"{number:04x}"
    ids = pa.array([mark + name[4:] for name in table[column].to_pylist()])
    table = table.set_column(table.column_names.index(column), column, ids)
    if column == "id":
        place = table.column_names.index("messages")
        words = pc.replace_substring(table["messages"], WORDS[number % len(WORDS)], f"word{number % 997}")
        table = table.set_column(place, "messages", words)
    pq.write_table(table, target)
    return table.num_rows if column == "id" else 0


@functools.cache
def _read(file: Path) -> pa.Table:
    return pq.read_table(file).slice(0, ROWS)


def _renamed(name: str, number: int) -> str:
    return name if name.startswith(SHARED) else f"{name.rpartition('-')[0]}-{_digest(f'{name}{number}', 16)}"


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def pages_of(visitor: httpx.Client, work: str, run: str) -> Iterator[tuple[str, str]]:
    """The pages, by name and address, as links of other pages lead to them."""
    here = f"/runs/{work}/{run}"
    yield "runs", "/"
    yield "runs, searched", "/?q=refused"
    yield "a run", here
    yield "tasks", f"{here}/tasks"
    yield "tasks, train", f"{here}/tasks?split=train"
    yield "a task over all runs", _link(visitor, f"{here}/tasks", "/tasks/")
    yield "before and after", _link(visitor, f"{here}/tasks", "/pair?")
    yield "groups", f"{here}/groups"
    group = _link(visitor, f"{here}/groups", "/groups/")
    yield "a group", group
    episode = _link(visitor, group, "/episodes/")
    yield "a trajectory", episode
    yield "its tokens", f"{episode}/tokens?by=advantage"
    yield "what was seen at a token", f"{episode}/tokens?at=60"
    yield "episodes", f"{here}/episodes"
    yield "episodes, filtered", f"{here}/episodes?outcome=failed&tool=move_file&sort=tokens"
    yield "search, a rare word", "/search?q=word41"
    yield "search, a common word", "/search?q=json"
    yield "search, common and filtered", "/search?q=json&outcome=failed&fault=loop"
    yield "search, nothing found", "/search?q=nowhere"
    for name in ("rollouts", "traces", "lineage", "review"):
        yield name, f"{here}/{name}"
    if visitor.get("/compare").is_success:  # the wheel `lab` is installed
        yield "two runs compared", _comparison(visitor, work, run)
    yield "whose data", "/lineage?user=user-001"


def _comparison(visitor: httpx.Client, work: str, run: str) -> str:
    values = re.findall(rf'value="({work}/[0-9a-f]+)"', visitor.get("/").text)
    return f"/compare?run={work}/{run}&run={next(value for value in values if not value.endswith(run))}"


def _link(visitor: httpx.Client, address: str, part: str) -> str:
    found = (link.replace("&amp;", "&") for link in re.findall(r'href="([^"]+)"', visitor.get(address).text))
    return next((link for link in found if part in link), f"{address}/none")


def measure(work: Path, repeat: int, paint: Paint) -> None:
    """Start the dashboard, ask for each page several times, and print the table."""
    port = free_port()
    command = [sys.executable, "-m", "flows.cli", "dashboard", str(work), "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server, httpx.Client(timeout=120) as visitor:
        visitor.base_url = httpx.URL(f"http://127.0.0.1:{port}")
        try:
            for _ in range(600):
                try:
                    begun = time.perf_counter()
                    first = visitor.get("/")
                    break
                except httpx.ConnectError:
                    time.sleep(0.2)
            print(f"\nfirst request of all, which reads every run: {time.perf_counter() - begun:.2f} s ({first.status_code})")
            run = sorted(path.name for path in work.iterdir() if RUN_ID.fullmatch(path.name))[:8][-1]
            pages = list(pages_of(visitor, work.name, run))
            _wait_for_the_learner(visitor, dict(pages)["a group"])
            print("\n| page | server time, median | slowest | size | first paint, median |\n|---|---:|---:|---:|---:|")
            for name, address in pages:
                painted = paint(f"{visitor.base_url}{address}".replace("//runs", "/runs"), repeat)
                print(f"{_row(visitor, name, address, repeat)} {painted} |", flush=True)
            status = Path(f"/proc/{server.pid}/status").read_text()
            peak, now = (int(re.search(rf"{key}:\s+(\d+)", status)[1]) / 1024 for key in ("VmHWM", "VmRSS"))  # type: ignore[index]
            print(f"\nmemory of the server: {now:.0f} MiB, at most {peak:.0f} MiB")
        finally:
            server.terminate()


@contextlib.contextmanager
def painter(wanted: bool) -> Iterator[Paint]:
    """What says when a browser has painted a page for the first time (First Contentful Paint), as the median of several."""
    if not wanted:
        yield lambda address, repeat: "not measured"
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = os.environ.get("TRACEWHEEL_BROWSER") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])

        def paint(address: str, repeat: int) -> str:
            found = []
            for _ in range(repeat):
                page = browser.new_page()  # with an empty cache
                page.goto(address)
                found.append(page.evaluate(PAINTED))
                page.close()
            return f"{statistics.median(found):.0f} ms"

        yield paint
        browser.close()


def _wait_for_the_learner(visitor: httpx.Client, group: str) -> None:
    for _ in range(300):
        if "Advantages follow" not in visitor.get(group).text:
            return
        time.sleep(0.2)


def _row(visitor: httpx.Client, name: str, address: str, repeat: int) -> str:
    seconds, answer = [], visitor.get(address)
    if answer.status_code != 200:
        return f"| {name} | not there ({answer.status_code}) | | |"
    for _ in range(repeat):
        begun = time.perf_counter()
        answer = visitor.get(address)
        seconds.append(time.perf_counter() - begun)
    size = len(answer.content) / 1024
    return f"| {name} | {1000 * statistics.median(seconds):.0f} ms | {1000 * max(seconds):.0f} ms | {size:.0f} KB |"


def main() -> None:
    """Make, digest, measure, delete."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--browser", action="store_true", help="measure first paints too, with playwright and Chromium")
    parser.add_argument("--folder", type=Path, help="keep the runs there, and take those that are there already")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dashboard-scale-") as place:
        work = (options.folder or Path(place)) / "scale"
        begun = time.perf_counter()
        if not work.is_dir():
            episodes = make_runs(unpack_demo(work.parent), work, options.runs)
            print(f"{options.runs:,} runs with {episodes:,} episodes made in {time.perf_counter() - begun:.0f} s", flush=True)
        shutil.rmtree(work / FOLDER, ignore_errors=True)
        begun, used, library = time.perf_counter(), time.process_time(), Library([work])
        Digests(library).of(next(iter(library.places.values())), seconds=math.inf)
        begun, used = time.perf_counter() - begun, time.process_time() - used
        size = sum(file.stat().st_size for file in (work / FOLDER).iterdir()) / 2**20
        print(f"digests made in {begun:.0f} s ({used:.0f} s of CPU); they have {size:.0f} MiB", flush=True)
        with painter(options.browser) as paint:
            measure(work, options.repeat, paint)


if __name__ == "__main__":
    main()
