"""A night reuses the replays and probes of earlier nights, and its curation is the same to the byte."""

import filecmp
import json
import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas
import pytest

from data.workspace_logs import TRAINED_TIERS, log_record
from tracewheel.config import CurateSections, IngestConfig, RetrainConfig
from tracewheel.core.errors import DataError
from tracewheel.curation.curate import HowTo, curate
from tracewheel.curation.difficulty import KeptPassCounts
from tracewheel.curation.replayed_traces import replayed_rows
from tracewheel.curation.split_record import SplitRecord
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.traces.incremental import ingest_new
from tracewheel_projects import log_line

COUNTS = {"train_tasks": 8, "validation_tasks": 4, "held_out_tasks": 4, "harder_tasks": 0, "min_attempts": 2}


def profile(kind="workspace", **curation):
    return CurateSections.of(RetrainConfig(name="test", environment={"kind": kind}, curation={**COUNTS, **curation}))


def log_lines(tasks, seed=0, kind="workspace"):
    """Three attempts at each task, each by a user of its own."""
    drawn, time = random.Random(seed), datetime(2026, 10, 1, tzinfo=UTC) + timedelta(days=seed)
    for number in range(tasks):
        task = make_task(FAMILIES[number % 4], TRAINED_TIERS[number // 4 % 3], drawn)
        for attempt in range(3):
            time += timedelta(seconds=1)
            user = f"user-{seed}-{number}"
            line = log_line(log_record(task, user, f"{user}-{attempt}", time, drawn))
            record = json.loads(line)
            record["environment"]["kind"] = kind
            yield json.dumps(record).encode()


AND_THEN = '{"role":"user","content":"And then?"}'


class Nights:
    """A folder of logs, ingested and curated each night with reuse, and without it for comparison."""

    def __init__(self, folder):
        self.folder, self.said, self.before = folder, [], (None, None)
        (folder / "logs").mkdir()

    def write(self, name, lines):
        with (self.folder / "logs" / name).open("ab") as file:
            file.writelines(line + b"\n" for line in lines)

    def ingest(self, **options):
        ingest_new(IngestConfig(paths=(str(self.folder / "logs"),)), self.folder / "ingested", **options)

    def curate(self, config=None, compare=True):
        """Curate with reuse, and without it to compare; returns what was said of reuse."""
        config, said = config or profile(), []
        anew, out = self.folder / "anew", self.folder / "curated"
        curate(config, self.folder / "ingested", out, *self.before, HowTo(reuse=self.folder / "reuse", say=said.append))
        if compare:
            curate(config, self.folder / "ingested", anew, *self.before)
            assert same(anew, out)
        self.before = KeptPassCounts.read(out), SplitRecord.of_curated(out)
        return said

    def files(self):
        return sorted((self.folder / "reuse").rglob("*.parquet"))


def same(one, other):
    compared = filecmp.dircmp(one, other)
    folders = [compared, *compared.subdirs.values()]
    equal = [not part.left_only and not part.right_only for part in folders]
    names = [(Path(part.left) / name, Path(part.right) / name) for part in folders for name in part.common_files]
    return all(equal) and len(names) > 8 and all(a.read_bytes() == b.read_bytes() for a, b in names)


@pytest.fixture
def nights(tmp_path):
    nights = Nights(tmp_path)
    nights.write("a.jsonl", log_lines(24))
    nights.ingest()
    return nights


def reused(said):
    """Numbers of the sentence: replays and probes that were reused, and new ones."""
    (sentence,) = [text for text in said if text.startswith("reused")]
    return [int(word.strip(",;").replace(",", "")) for word in sentence.split() if word.strip(",;").replace(",", "").isdigit()]


def test_only_what_is_new_is_replayed_and_every_night_has_the_same_bytes(nights):
    assert nights.curate(compare=False) == []

    # Known attempts again (copies), new attempts at a known task, and new tasks.
    known = list(log_lines(24))
    nights.write("a.jsonl", [known[0], known[5]])
    nights.write("b.jsonl", [*known[:2], *log_lines(3, seed=1)])
    nights.ingest()
    assert reused(nights.curate()) == [72, 24, 9, 3]

    # Deleted by request: the log is read again as a whole without them, and nothing is kept of them.
    (nights.folder / "logs" / "b.jsonl").unlink()
    nights.ingest(full=True)
    assert reused(nights.curate(compare=False)) == [72, 24, 0, 0]
    kept = pandas.concat(pandas.read_parquet(file, columns=["task_id"]) for file in nights.files() if file.name[0] == "t")
    assert kept["task_id"].nunique() == 24


def rows_of(part):
    return pandas.read_parquet(part)


@pytest.mark.slow
def test_any_change_of_stored_traces_gives_the_same_bytes_as_curating_anew(nights):
    """Grown sessions replace rows of earlier parts, longer requests supersede shorter ones, parts are cut and moved."""
    parts = nights.folder / "ingested" / "traces.parquet"
    nights.curate()
    drawn = random.Random(0)
    for night in range(4):
        part = drawn.choice(sorted(parts.glob("*.parquet")))
        rows = rows_of(part)
        grown = rows.sample(3, random_state=night)
        left = rows.drop(grown.index).sample(frac=1.0, random_state=night)
        longer = grown.assign(messages=[f"{text[:-1]},{AND_THEN}]" for text in grown["messages"]])
        begun = longer.assign(
            id=[f"{name}-begun" for name in longer["id"]], format="requests", outcome=None,
            messages=[json.dumps(json.loads(text)[:3]) for text in longer["messages"]],
        )  # fmt: skip
        left.to_parquet(part, index=False)
        new = pandas.concat([begun, longer.assign(format="requests")]).astype({"outcome": "float64"})
        new.to_parquet(parts / f"part-{night + 1:05d}.parquet", index=False)
        replays, probes, new_replays, _ = reused(nights.curate())
        assert (replays, new_replays) == (69 if night == 0 else replays, 3 if night == 0 else new_replays)
        assert replays >= 60
        assert probes == 24


@pytest.mark.slow
def test_other_settings_and_damage_are_never_answered_with_old_results(nights):
    nights.curate()
    first = nights.files()
    assert reused(nights.curate(profile(filter="attempts >= 2"))) == [72, 24, 0, 0]

    damaged, missing = sorted(path for path in nights.files() if path.parent == first[0].parent)
    damaged.write_bytes(damaged.read_bytes()[:-9] + b"otherwise")
    missing.unlink()
    said = nights.curate()
    assert [f"{path} is {what}: its results are made again" for path, what in ((damaged, "damaged"), (missing, "missing"))] == (
        sorted(said)
    )
    assert reused(nights.curate()) == [72, 24, 0, 0]
    (damaged.parent / "index.json").write_text("{")
    (said,) = nights.curate()
    assert f"{damaged.parent / 'index.json'} cannot be read" in said


WORLD = """
from dataclasses import replace
from pathlib import Path
from tracewheel.environments.workspace.environment import WorkspaceEnvironment
from {name}_words import ANSWER
from tracewheel import Observation

class World(WorkspaceEnvironment):
    kind = "{name}:World"

    def task_from_log(self, prompt, logged):
        return replace(super().task_from_log(prompt, logged), environment=self.kind)

    def step(self, tool, args):
        seen = super().step(tool, args)
        file = Path(__file__).with_name("answer.txt")
        text = file.read_text() if file.exists() else ANSWER
        return Observation(seen.text + text, seen.error, seen.done)
"""


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A module of one's own with an environment, and the logs of its world."""
    monkeypatch.syspath_prepend(tmp_path)
    name = f"world_{abs(hash(str(tmp_path)))}"

    def write(answer):
        (tmp_path / f"{name}.py").write_text(WORLD.format(name=name))
        (tmp_path / f"{name}_words.py").write_text(f"ANSWER = {answer!r}\n")
        for module in (name, f"{name}_words"):
            sys.modules.pop(module, None)

    write("")
    nights = Nights(tmp_path)
    nights.write("a.jsonl", log_lines(12, kind=f"{name}:World"))
    nights.ingest()
    return nights, profile(f"{name}:World", allow_drift=True, train_tasks=2, validation_tasks=1, held_out_tasks=1), write


def agreeing(nights):
    return json.loads((nights.folder / "curated" / "report.json").read_text())["agreement"]["agreeing"]


@pytest.mark.slow
def test_a_change_in_what_the_environment_imports_replays_everything(world):
    nights, config, write = world
    nights.curate(config)
    assert reused(nights.curate(config))[0] == 36
    everything = agreeing(nights)
    # Written again with the same bytes, it is the same environment; with others, it is not.
    write("")
    assert reused(nights.curate(config))[0] == 36
    write(" ")
    with pytest.raises(DataError, match="agree with their log"):
        nights.curate(config)
    assert everything > 30


def test_an_environment_that_replies_otherwise_than_before_is_found_and_never_reused(world):
    """What no key sees: a file that the environment reads."""
    nights, config, _ = world
    nights.curate(config, compare=False)
    (nights.folder / "answer.txt").write_text(" ")
    said, everything = [], agreeing(nights)
    how = HowTo(reuse=nights.folder / "reuse", say=said.append)
    report = curate(config, nights.folder / "ingested", nights.folder / "out", how=how)
    assert report["agreement"]["agreeing"] < everything / 2
    assert said[0].startswith("the environment is not deterministic, so all traces are replayed: workspace-")
    assert nights.files() == []
    (nights.folder / "answer.txt").unlink()
    (said,) = nights.curate(config, compare=False)
    assert said.startswith("replays are not reused: workspace-")


def test_the_outcomes_of_a_part_are_those_of_the_curation_which_then_reuses_them(nights):
    ingested = nights.folder / "ingested"
    outcomes = pandas.DataFrame(replayed_rows(ingested, profile(), nights.folder / "reuse"))
    assert outcomes["id"].tolist() == rows_of(ingested / "traces.parquet" / "part-00000.parquet")["id"].tolist()
    assert outcomes["dropped"].eq("").all()
    differs = (outcomes["outcome"] - outcomes["success"]).abs() > 1e-6
    assert differs.tolist() == outcomes["reward_drift"].tolist()
    assert reused(nights.curate(compare=False)) == [72, 0, 0, 24]
    episodes = pandas.read_parquet(nights.folder / "curated" / "episodes.parquet").set_index("trace_id")["success"]
    assert outcomes.set_index("id").loc[episodes.index, "success"].equals(episodes)
    recorded = list(replayed_rows(ingested, profile("recorded:somewhere")))
    assert {row["dropped"] for row in recorded} == {"a recorded environment proves no outcome"}
    assert len(recorded) == len(outcomes)
