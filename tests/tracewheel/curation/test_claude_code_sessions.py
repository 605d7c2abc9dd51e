"""From sessions of Claude Code in Harbor's trials to training sets: ingest, record, curate."""

import json

import pandas
import pytest

from flows.cli import main

SIZES = {"train_tasks": 3, "validation_tasks": 1, "held_out_tasks": 1, "harder_tasks": 0, "min_attempts": 1, "harder_tier": 99}
BUGS = {
    "parser": "Dates such as 1 May are read as the fifth of January. Please find out why, and mend it.",
    "cache": "Somebody reports that evicted entries come back after a restart; they must not.",
    "retry": "When the upload service answers 503 we give up at once instead of waiting a little.",
    "clock": "In summer all alarms ring an hour late on machines in Lisbon.",
    "queue": "Two workers sometimes take one and the same job from our queue, how do we stop that?",
    "index": "Searching for names with accents finds nothing although the rows are there.",
}
# Attempts at each task: whether the agent runs the tests before it ends, and what the verifier gives.
ATTEMPTS = ((True, 1.0), (True, 1.0), (False, 0.0), (False, None))


def session(bug, attempt, tested):
    """The lines of one session: two files are read at once, one is mended, a sub-agent searches, the API fails once."""
    name = f"{bug}-{attempt}"
    last = None

    def line(kind, uuid, content, **more):
        nonlocal last
        side = bool(more.get("isSidechain"))
        message = {"role": kind, "content": content}
        if kind == "assistant":
            message |= {
                "type": "message",
                "model": "m",
                "id": more.pop("id", uuid),
                "usage": {"input_tokens": 9, "output_tokens": 3},
            }
        parent = more.pop("parent", None if side else last)
        last = last if side else uuid
        base = {"isSidechain": side, "userType": "external", "cwd": "/app", "sessionId": name, "version": "2.1.39"}
        when = {"uuid": uuid, "timestamp": f"2026-10-01T08:0{attempt}:00.000Z"}
        return {"parentUuid": parent, **base, "type": kind, "message": message, **when, **more}

    def call(identity, tool, **arguments):
        return [{"type": "tool_use", "id": f"{name}-{identity}", "name": tool, "input": arguments}]

    def result(identity, text):
        return [{"type": "tool_result", "tool_use_id": f"{name}-{identity}", "content": text}]

    lines = [
        line("user", "u1", BUGS[bug]),
        line("assistant", "a1", [{"type": "thinking", "thinking": "I read first.", "signature": "s"}], id="m1"),
        line("assistant", "a2", call("c1", "Read", file_path=f"{bug}.py"), id="m1"),
        line("user", "r1", result("c1", f"def {bug}(): return 1 / 0")),
        line("assistant", "a3", call("c2", "Read", file_path=f"test_{bug}.py"), id="m1", parent="a2"),
        line("user", "r2", result("c2", f"assert {bug}() == 1")),
        line("assistant", "e1", [{"type": "text", "text": "API Error"}], isApiErrorMessage=True),
        line("user", "s1", f"List the callers of {bug}.", isSidechain=True, agentId="a7"),
        line("assistant", "s2", [{"type": "text", "text": "None."}], isSidechain=True, agentId="a7", parent="s1"),
        line("assistant", "a4", call("c3", "Edit", file_path=f"{bug}.py", new_string="return 1" if tested else "pass")),
        line("user", "r3", result("c3", "Edited.")),
    ]
    if tested:
        lines += [line("assistant", "a5", call("c4", "Bash", command="pytest")), line("user", "r4", result("c4", "1 passed"))]
    return [*lines, line("assistant", "a6", [{"type": "text", "text": f"The {bug} is mended."}])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("claude")
    for bug in BUGS:
        for attempt, (tested, reward) in enumerate(ATTEMPTS):
            trial = folder / f"jobs/{bug}__{attempt}"
            place = trial / "agent/sessions/projects/-app"
            place.mkdir(parents=True)
            lines = session(bug, attempt, tested)
            (place / f"{bug}-{attempt}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            verified = None if reward is None else {"rewards": {"reward": reward}}
            found = {"task_name": f"bugs/{bug}", "trial_name": trial.name, "verifier_result": verified, "exception_info": None}
            (trial / "result.json").write_text(json.dumps(found))
    logs = str(folder / "jobs/**/sessions/**/*.jsonl")
    assert main(["ingest", logs, "--out", str(folder / "ingested")]) == 0
    return folder


def test_sessions_have_the_task_and_the_reward_of_their_trial(folder):
    traces = pandas.read_parquet(folder / "ingested/traces.parquet")
    main_ones = traces[~traces["id"].str.contains("/")].set_index("id")
    assert len(main_ones) == len(BUGS) * len(ATTEMPTS) == len(traces) - len(main_ones)
    assert (main_ones["outcome"].isna().sum(), (main_ones["outcome"] == 1).sum()) == (6, 12)  # unscored is not 0
    assert set(main_ones["task"]) == {f"bugs/{bug}" for bug in BUGS}
    assert traces[traces["id"].str.contains("/")]["outcome"].isna().all()  # the reward is not the sub-agent's
    messages = json.loads(main_ones.loc["parser-0", "messages"])
    assert [message["role"] for message in messages][:5] == ["user", "assistant", "tool", "tool", "assistant"]


def test_they_become_demonstrations_and_preference_pairs(folder):
    assert main(["data", "record", str(folder / "ingested"), "--out", str(folder / "recorded")]) == 0
    curation = {**SIZES, "sets": {"sources": ["logged"]}}
    profile = {"name": "claude", "environment": {"kind": f"recorded:{folder / 'recorded'}"}, "curation": curation}
    (folder / "profile.yaml").write_text(json.dumps(profile))
    command = ["curate", str(folder / "profile.yaml"), "--traces", str(folder / "ingested"), "--out", str(folder / "curated")]
    assert main(command) == 0
    sets = {
        name: pandas.read_parquet(folder / f"curated/sets/{name}.parquet") for name in ("demonstrations", "preference_pairs")
    }
    outcomes = pandas.read_parquet(folder / "ingested/traces.parquet").set_index("id")["outcome"]
    assert {name: len(rows) for name, rows in sets.items()} == {"demonstrations": 6, "preference_pairs": 6}
    assert set(outcomes[sets["demonstrations"]["trace_id"]]) == {1.0}
    assert set(outcomes[sets["preference_pairs"]["rejected_trace"]]) == {0.0}
