"""A client's work by its real stages: what it sends, what it does not, and that nothing is done twice."""

import json
import shutil

import numpy as np
import pytest
import torch

from plugins.federated.tests.conftest import PLANTED
from tracewheel_federated.client_work import Client, _pull, counted
from tracewheel_federated.low_rank import A
from tracewheel_federated.settings import ClientConfig, likeness
from tracewheel_federated.states import WEIGHTS, read_adapter, untrained


@pytest.fixture
def asked(make_client, tmp_path):
    """A client, and a folder with an order for it."""
    client = Client(ClientConfig.load(make_client("north")))

    def ask(work="train", number=1, alike=None, **values):
        folder = tmp_path / "north" / "rounds" / "woods" / f"{number:03d}-{work}"
        folder.mkdir(parents=True)
        form = untrained(client.config, client.out / "untrained")
        shutil.copyfile(form / WEIGHTS, folder / "global.safetensors")
        order = {"federation": "woods", "round": number, "work": work, "alike": alike or likeness(client.config), **values}
        (folder / "order.json").write_text(json.dumps(order))
        return folder

    return client, ask


def test_only_an_adapter_and_numbers_are_sent_and_once(asked):
    client, ask = asked
    folder = ask(frozen_a=True)
    answer = client.carry_out(folder)
    assert answer.examples > 0
    sent = {name: (folder / name).read_bytes() for name in ("answer.json", "adapter.safetensors")}
    assert all(PLANTED.encode() not in each for each in sent.values())
    assert PLANTED in (client.out / "curated" / "tasks.parquet").parent.joinpath("report.json").read_text() or any(
        PLANTED.encode() in file.read_bytes() for file in client.out.rglob("*.parquet")
    )  # the text is there, where it belongs
    start, trained = read_adapter(folder / "global.safetensors"), read_adapter(folder / "adapter.safetensors")
    changed = {name for name in start if not np.array_equal(start[name], trained[name])}
    assert changed
    assert not {name for name in changed if A in name}  # A is shared
    (folder / "adapter.safetensors").touch()
    before = (folder / "adapter.safetensors").stat().st_mtime_ns
    assert client.carry_out(folder) == answer  # a client that was killed after its work does none again
    assert (folder / "adapter.safetensors").stat().st_mtime_ns == before
    (folder / "done.json").unlink()  # one that was killed in its work does it again, with the same bytes
    client.carry_out(folder)
    assert {name: (folder / name).read_bytes() for name in sent} == sent
    judged = client.carry_out(ask("judge"))
    assert judged.counts.tasks == 4
    assert judged.counts.before == judged.counts.after  # the global adapter of the first round is the base


def test_the_rate_rises_in_the_first_round_alone(asked, monkeypatch):
    client, ask = asked
    client.config = client.config.model_copy(
        update={"warm_start": client.config.warm_start.model_copy(update={"warmup_steps": 3})}
    )
    seen = []

    def fake(sections, curated, out, kind, begin):
        seen.append((sections.warm_start.warmup_steps, sections.seed))
        shutil.copytree(client.out / "untrained", out, dirs_exist_ok=True)
        return {"examples": 1}

    monkeypatch.setattr("tracewheel_federated.client_work.warm_start", fake)
    for number in (1, 2):
        client.carry_out(ask(number=number))
    assert seen == [(3, 0), (0, 1)]


def test_another_environment_is_refused_before_anything_is_read(asked):
    client, ask = asked
    folder = ask(alike="ab" * 8)
    assert client.carry_out(folder).refused == "other environment"
    assert not (client.out / "ingested").exists()
    assert not (folder / "adapter.safetensors").exists()


def test_likeness_is_of_tools_prompt_base_and_adapter(make_client):
    digest = lambda *overrides: likeness(ClientConfig.load(make_client("any", count=1, overrides=overrides)).own())  # noqa: E731
    same = digest()
    assert digest("seed=7", "warm_start.epochs=3", "rollout.temperature=0.7") == same
    assert digest("warm_start.lora.rank=8") != same
    assert digest("environment.kind=order_desk") != same


def test_the_pull_of_fedprox_is_added_once_a_step():
    parameter = torch.nn.Parameter(torch.tensor([1.0]))
    parameter.register_hook(_pull(parameter, 0.5))
    with torch.no_grad():
        parameter.add_(2.0)  # 3, which began as 1
    for _ in range(2):  # two micro-batches of one step, with a gradient of 10 each
        (10 * parameter).sum().backward()
    assert parameter.grad.item() == pytest.approx(20 + 0.5 * 2)


def test_counts_are_of_tasks_that_both_have_a_score_of(tmp_path):
    import pandas as pd

    for name, greedy in (("before", [1.0, 0.0, None, 1.0]), ("after", [1.0, 1.0, 1.0, 0.0])):
        (tmp_path / name).mkdir()
        pd.DataFrame({"task_id": list("abcd"), "greedy": greedy}).to_parquet(tmp_path / name / "results.parquet")
    found = counted(tmp_path / "before", tmp_path / "after")
    assert found.model_dump() == {"tasks": 3, "before": 2, "after": 2, "gained": 1, "lost": 1}
