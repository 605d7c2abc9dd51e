"""`tracewheel check` on a desk of a user's own: what is right, and twenty mistakes, each answered with what to do."""

import json
import sys
import textwrap
from datetime import UTC, datetime

import pytest
import yaml

from tracewheel.config import RetrainConfig
from tracewheel.operations.preflight import logs
from tracewheel.operations.preflight.line import Looked
from tracewheel.traces.sources import SOURCES, located

DESK = """
    from tracewheel import Observation, Task, content_hash, function_tool

    class Desk:
        kind = "own_desk:Desk"
        system_prompt = "You keep a list."
        started = 0

        def tools(self):
            return [function_tool("add", "Add a word.", {"word": {"type": "string"}})]

        def task_from_log(self, prompt, logged):
            start, goal = {"words": logged["words"]}, {"words": logged["want"]}
            name = content_hash([start, goal])
            return Task(id=name, environment=self.kind, family=logged["family"], tier=1, prompt=prompt,
                        initial_state=start, goal=goal, verifier="own_desk:Check", fingerprint=name)

        def reset(self, task):
            self.words = list(task.initial_state["words"])

        def step(self, tool, args):
            self.words.append(args["word"])
            return Observation("ok")

        def snapshot(self):
            return {"words": self.words}

    class Check:
        kind = "own_desk:Check"

        def verify(self, task, final_state):
            right = final_state["words"] == task.goal["words"]
            return float(right), {"words": float(right)}
"""
PROFILE = {
    "environment": {"kind": "own_desk:Desk"},
    "ingest": {"paths": ["log.jsonl"]},
    "curation": {"train_tasks": 4, "validation_tasks": 2, "held_out_tasks": 24, "harder_tasks": 0},
    "rollout": {"engine": {"kind": "transformers"}, "max_tokens": 400, "max_turn_tokens": 64},
}
WORDS = ("apple", "bread", "cheese", "dates", "eggs", "flour", "grapes", "honey")


def record(number, *, solved=True, environment=True, word=None):
    word = word or WORDS[number % len(WORDS)]
    call = {
        "id": "c",
        "type": "function",
        "function": {"name": "add", "arguments": json.dumps({"word": word if solved else "x"})},
    }
    start = {"kind": "own_desk:Desk", "words": ["a"], "want": ["a", word], "family": "add"}
    return {
        "messages": [
            {"role": "user", "content": f"Add {word}."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "ok"},
            {"role": "assistant", "content": "Done."},
        ],
        **({"environment": start} if environment else {}),
    }


class Bench:
    """A project in a folder: its module, log and profile, each to be broken."""

    def __init__(self, folder, base):
        self.folder, self.module = folder, textwrap.dedent(DESK)
        self.values = json.loads(json.dumps(PROFILE)) | {"policy": {"base": base}, "work_dir": str(folder / "runs")}
        self.records = [record(number, solved=number % 3 > 0) for number in range(16)]

    def edit(self, old, new):
        assert old in self.module
        self.module = self.module.replace(old, new)

    def set(self, section, **values):
        self.values[section] = self.values.get(section, {}) | values

    def write(self):
        (self.folder / "own_desk.py").write_text(self.module)
        (self.folder / "log.jsonl").write_text("".join(json.dumps(one) + "\n" for one in self.records))
        self.values["ingest"]["paths"] = [str(self.folder / path) for path in self.values["ingest"]["paths"]]
        (self.folder / "p.yaml").write_text(yaml.safe_dump(self.values))
        return self.folder / "p.yaml"


@pytest.fixture
def bench(tmp_path, base, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Bench(tmp_path, base)
    sys.modules.pop("own_desk", None)


def lines_of(run, profile):
    code, out, err = run("check", profile, "--json")
    return code, {line["name"]: line for line in json.loads(out).get("lines", [])} if out else {}, err


def test_a_sound_profile_is_checked_in_every_respect(bench, run):
    code, lines, err = lines_of(run, bench.write())
    assert code == 0, err
    assert {line["state"] for line in lines.values()} == {"ok"}, lines
    wanted = {
        "environment",
        "rubric",
        "logs",
        "replays",
        "outcomes",
        "tasks",
        "reward",
        "template",
        "prompts",
        "base",
        "gate",
        "splits",
        "threads",
        "components",
    }
    assert set(lines) == wanted
    assert lines["outcomes"]["says"] == "10 of 16 episodes succeed by the verifier"


def spend_the_budget(bench):
    runs = bench.folder / "runs"
    runs.mkdir()
    began = datetime.now(UTC).isoformat()
    gate = {"evidence": "a-b", "run": "r", "baseline": "base", "began": began, "level": 1.0}
    (runs / "gates.json").write_text(json.dumps([gate]))


def say_later(bench, text):
    (bench.folder / "said.csv").write_text(text)
    bench.set("ingest", outcomes={"paths": [str(bench.folder / "said.csv")]})


# Mistake: what is broken, the line that says so, whether a run can go on, and parts of what is said.
MISTAKES = {
    "step returns a text": (
        lambda b: b.edit('return Observation("ok")', 'return "ok"'),
        (
            "replays",
            "error",
            "own_desk:Desk",
            "step returns a str",
            "a tracewheel.Observation",
            "own_desk.py, line",
            "log.jsonl:1",
        ),
    ),
    "a misspelt field of the log": (
        lambda b: b.edit('logged["family"]', 'logged["famly"]'),
        ("replays", "error", "task_from_log raises KeyError: 'famly'", 'logged["famly"]', "log.jsonl:1"),
    ),
    "verify returns True": (
        lambda b: b.edit('return float(right), {"words": float(right)}', "return right"),
        ("outcomes", "error", "own_desk:Check", "verify returns", "a pair (total, parts)"),
    ),
    "a misspelt method": (
        lambda b: b.edit("def snapshot", "def snapshott"),
        ("environment", "error", "has no method snapshot (there is snapshott)"),
    ),
    "a log without its starting point": (
        lambda b: setattr(b, "records", [record(number, environment=False) for number in range(8)]),
        ("replays", "error", "no environment logged", "log.jsonl:1"),
    ),
    "an invalid schema of a tool": (
        lambda b: b.edit('{"type": "string"}', '{"type": "txt"}'),
        ("environment", "error", "'add' has none", "$.properties.word.type"),
    ),
    "snapshot returns a list": (
        lambda b: b.edit('return {"words": self.words}', "return self.words"),
        ("outcomes", "error", "snapshot returns a list", "a dictionary of JSON values"),
    ),
    "the verifier raises": (
        lambda b: b.edit('task.goal["words"]', 'task.goal["word"]'),
        ("outcomes", "error", "verify raises KeyError: 'word'", 'task.goal["word"]'),
    ),
    "snapshot raises in some states": (
        lambda b: b.edit('return {"words": self.words}', 'return {"words": self.words} if self.words[-1] != "x" else 1 / 0'),
        ("outcomes", "warning", "6 more have no score", "snapshot raises"),
    ),
    "task_from_log returns nothing": (
        lambda b: b.edit("return Task(", "Task("),
        ("replays", "error", "task_from_log returns None", "a tracewheel.Task"),
    ),
    "the goal is a list": (
        lambda b: b.edit(
            'goal = {"words": logged["words"]}, {"words": logged["want"]}', 'goal = {"words": logged["words"]}, logged["want"]'
        ),
        ("replays", "error", "a Task whose goal is a dictionary"),
    ),
    "reset raises": (
        lambda b: b.edit('task.initial_state["words"]', 'task.initial_state["word"]'),
        ("replays", "error", "reset raises KeyError: 'word'"),
    ),
    "an environment that answers otherwise": (
        lambda b: b.edit('Observation("ok")', 'Observation("fine")'),
        ("replays", "warning", "0 of 16 traces are answered as logged"),
    ),
    "a reward that is there without any work": (
        lambda b: (
            b.edit('{"words": float(right)}', '{"words": float(right), "calm": 1.0}'),
            b.set("rubric", objectives=[{"kind": "part", "name": "calm", "part": "own_desk:Check.calm"}]),
        ),
        ("reward", "error", "earns 100% of the full reward, more than 30% (audit.max_idle_reward)", "before the first call"),
    ),
    "a part that no verifier gives": (
        lambda b: b.set("rubric", objectives=[{"kind": "part", "name": "words", "part": "own_desk:Check.word"}]),
        ("reward", "error", "no part 'own_desk:Check.word'; its parts are own_desk:Check, own_desk:Check.words"),
    ),
    "an environment that is never twice the same": (
        lambda b: (
            b.edit('{"words": self.words}', '{"words": self.words, "at": self.started}'),
            b.edit("self.words = list", "Desk.started += 1; self.words = list"),
        ),
        ("tasks", "warning", "two runs disagree"),
    ),
    "a verifier that is content with nothing": (
        lambda b: b.edit('final_state["words"] == task.goal["words"]', "True"),
        ("tasks", "warning", "doing nothing scores 1"),
    ),
    "a step that raises a mistake of its author": (
        lambda b: b.edit("self.words.append(args", "self.words.apend(args"),
        ("exceptions", "warning", "raises at 16 of 16 logged calls, 16 by AttributeError in add (own_desk.py:", "has no score"),
    ),
    "a step that raises what tools raise": (
        lambda b: b.edit("self.words.append(args", "{}[self.words.pop()](args"),
        ("calls", "warning", "16 of 16 logged calls are answered as errors, 16 of add, answered with KeyError (own_desk.py:"),
    ),
    "tools that are not those of the log": (
        lambda b: b.edit('function_tool("add"', 'function_tool("put"'),
        ("calls", "warning", "16 of add, of a tool that is not offered: in an episode that is the policy's mistake", "widen"),
    ),
    "a schema that the log does not keep": (
        lambda b: b.edit('{"type": "string"}', '{"type": "integer"}'),
        ("calls", "warning", "16 of add, against the tool's schema"),
    ),
    "a slow tool": (
        lambda b: (
            b.edit("self.words.append", "__import__('time').sleep(0.3); self.words.append"),
            b.set("rollout", tool_threads=1),
        ),
        ("tools", "warning", "add (0.3", "tool_threads"),
    ),
    "an exception at a call that no log has": (
        lambda b: (
            b.edit("self.words.append", "[].pop() if args['word'] == 'x' else None; self.words.append"),
            setattr(b, "records", [record(number) for number in range(16)]),
        ),
        ("made-up calls", "warning", "1 call with made-up", "step raises IndexError", "raise ToolError"),
    ),
    "a connection that belongs to one thread": (
        lambda b: (
            b.edit("self.words = list", "self.db = __import__('sqlite3').connect(':memory:'); self.words = list"),
            b.edit("self.words.append", "self.db.execute('select 1'); self.words.append"),
            b.set("rollout", tool_threads=4),
        ),
        ("threads", "error", "SQLite objects created in a thread", "own_desk.py, line", "check_same_thread=False"),
    ),
    "records that cannot be read": (
        lambda b: setattr(b, "records", [{"what": 1}, {"what": 2}]),
        ("logs", "error", "2 records cannot be read", "log.jsonl:1"),
    ),
    "tasks that are copies of one another but for a number": (
        lambda b: setattr(b, "records", [record(number, word=f"w{number % 8}") for number in range(16)]),
        ("components", "error", "8 tasks hang together in 1 component", "renumbered copies ties 8 tasks", "duplicates.link"),
    ),
    "a row of outcomes that holds none": (
        lambda b: say_later(b, "id,value\nchat-1,1\nchat-2,soso\n"),
        (
            "late outcomes",
            "warning",
            "1 outcome in outcomes/said.csv; 1 row without one (first: outcomes/said.csv:3: the outcome is",
        ),
    ),
    "outcomes under names that nobody knows": (
        lambda b: say_later(b, "conv,stars\nchat-1,1\n"),
        ("late outcomes", "error", "said.csv: none of its 1 rows is an outcome", "ingest.outcomes.fields"),
    ),
    "no such log": (lambda b: b.set("ingest", paths=["logs/*.jsonl"]), ("logs", "error", "logs/*.jsonl")),
    "no such base": (lambda b: b.set("policy", base="/no/base"), ("base", "error", "/no/base")),
    "conversations that the base has no room for": (
        lambda b: b.set("rollout", max_tokens=4096),
        ("base", "error", "set rollout.max_tokens to at most 2048"),
    ),
    "prompts that leave no room": (
        lambda b: b.set("rollout", max_tokens=80),
        ("prompts", "error", "set rollout.max_tokens to at least"),
    ),
    "fewer held-out tasks than the gate takes": (
        lambda b: b.set("curation", held_out_tasks=8),
        ("gate", "warning", "below gate.min_pairs, 20"),
    ),
    "a budget that is spent": (spend_the_budget, ("gate", "error", "spent its error budget", "gate.gates_per_year")),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_with_its_place_and_what_to_do(bench, run, mistake):
    breaks, (name, state, *parts) = MISTAKES[mistake]
    breaks(bench)
    code, lines, err = lines_of(run, bench.write())
    assert code == (2 if "error" in {line["state"] for line in lines.values()} else 0), err
    said = f"{lines[name]['says']} {lines[name]['advice']}"
    assert lines[name]["state"] == state, said
    assert not [part for part in parts if part not in said], said


def test_a_source_of_which_nothing_was_fetched_yet_stands_in_nobodys_way(tmp_path, monkeypatch):
    monkeypatch.setitem(SOURCES._set, "desk", object)
    ingest = {"paths": located(["desk:agents"], tmp_path)}
    config = RetrainConfig.model_validate({**PROFILE, "name": "desk", "ingest": ingest})
    [line] = logs.check_logs(Looked(config))
    assert (line.state, line.says) == ("skipped", "desk:agents: nothing was fetched yet")


def test_a_class_that_fails_at_each_trace_is_an_error_though_more_logs_follow(bench, run, monkeypatch):
    monkeypatch.setattr(logs, "TRACES", 8)
    bench.edit('return Observation("ok")', 'return "ok"')
    code, lines, _ = lines_of(run, bench.write())
    assert (code, lines["replays"]["state"]) == (2, "error")


@pytest.mark.parametrize(
    ("breaks", "parts"),
    [
        (lambda b: b.set("curation", trian_tasks=3), ("curation.trian_tasks", "did you mean curation.train_tasks?")),
        (lambda b: b.set("environment", kind="own_desk:Dsk"), ("environment 'own_desk:Dsk'", "did you mean own_desk:Desk?")),
    ],
    ids=["a key", "a class"],
)
def test_a_misspelt_name_is_answered_with_the_one_that_was_meant(bench, run, breaks, parts):
    breaks(bench)
    code, out, err = run("check", bench.write(), "--json")
    assert code == 2
    assert not [part for part in parts if part not in out + err], out + err
