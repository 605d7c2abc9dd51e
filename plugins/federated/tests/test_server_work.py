"""The server's decisions, from the files that clients' answers lie in, without Flower and without a model."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from tracewheel import ConfigError, DataError
from tracewheel_federated.commands.forget import run as forget
from tracewheel_federated.commands.quarantine import run as quarantine
from tracewheel_federated.commands.release import run as release
from tracewheel_federated.page import write_federation_page
from tracewheel_federated.provenance import forgetting
from tracewheel_federated.quarantine import held
from tracewheel_federated.server_work import Server
from tracewheel_federated.settings import ClientConfig, Counts, FederationConfig, Order
from tracewheel_federated.states import read_adapter, write_adapter
from tracewheel_federated.verdicts import interval_of, verdict_of

ALIKE = "ab" * 8
A, B = "layer.lora_A.weight", "layer.lora_B.weight"


class Options:
    def __init__(self, **values):
        self.__dict__.update(values)


@pytest.fixture
def federation(tmp_path):
    """A federation whose first global adapter is there already, so that no base is loaded."""
    out = tmp_path / "server"
    write_adapter(
        {A: np.eye(2, dtype=np.float32), B: np.zeros((2, 2), np.float32)}, out / "untrained/adapter/adapter_model.safetensors"
    )
    (out / "start.json").write_text(json.dumps({"alike": ALIKE}))
    values = {
        "name": "woods",
        "profile": "configs/tiny.yaml",
        "out": str(out),
        "rounds": 3,
        "aggregation": {"method": "frozen_a"},
        "server": {"keys": str(tmp_path / "keys")},
    }
    file = tmp_path / "federation.yaml"
    file.write_text(yaml.safe_dump(values))
    return file, out


def step_of(file):
    return Server(FederationConfig.load(file)).next_step()


def answer(folder, client, b, **values):
    """A client's answer: what it added to B, with the A that all begin with."""
    own = folder / "answers" / client
    said = {"client": client, "alike": ALIKE, "examples": 10, **values}
    if b is not None:
        before = read_adapter(folder / "global.safetensors")
        write_adapter({A: before[A], B: before[B] + np.array(b, np.float32)}, own / "adapter.safetensors")
    own.mkdir(parents=True, exist_ok=True)
    (own / "answer.json").write_text(json.dumps(said))


def play(file, answers):
    """One step: what is to be done, the answers, what came of them."""
    step = step_of(file)
    folder = Path(step["folder"])
    for client, b in answers.items():
        answer(folder, client, b)
    return folder, Server(FederationConfig.load(file)).close(folder)


HONEST = {"ash": [[1, 0], [0, 0]], "birch": [[1, 0], [0, 0.2]], "cedar": [[1, 0.2], [0, 0]]}


def test_a_round_makes_the_next_global_adapter_from_the_mean(federation):
    file, _ = federation
    file.write_text(file.read_text().replace("frozen_a", "stacked"))
    folder, record = play(file, HONEST)
    after = read_adapter(folder / "next.safetensors")
    assert after[B] @ after[A] == pytest.approx(np.array([[1, 0.2 / 3], [0, 0.2 / 3]]), abs=1e-5)
    assert record["clients"] == ["ash", "birch", "cedar"]
    assert not record["left_out"]
    assert record["error"] < 1e-6
    assert step_of(file)["work"] == "validate"  # of the adapter that came of it
    assert read_adapter(folder.parent / "001-validate" / "global.safetensors")[B] == pytest.approx(after[B])


def test_an_attacker_is_left_out_then_quarantined_and_released(federation):
    file, out = federation
    for number in (1, 2):
        folder, record = play(file, {**HONEST, "viper": [[-10, 0], [0, 0]]})
        assert record["round"] == number
        assert "times the median" in record["left_out"]["viper"][0]
        assert "viper" not in record["clients"]
        for client in HONEST:
            answer(folder.parent / f"{number:03d}-validate", client, None)
        Server(FederationConfig.load(file)).close(folder.parent / f"{step_of(file)['round']:03d}-validate")
    assert record["quarantined"] == ["viper"]
    _, record = play(file, {**HONEST, "viper": HONEST["ash"]})
    assert record["refused"] == {"viper": "quarantined"}
    assert "left out 2 rounds" in release(Options(federation=str(file), client="viper"))["was quarantined because"]
    assert held(out) == {}
    with pytest.raises(DataError, match="viper: is not quarantined"):
        release(Options(federation=str(file), client="viper"))
    quarantine(Options(federation=str(file), client="viper", reason="asked"))
    assert held(out) == {"viper": "asked"}


def test_what_cannot_be_used_is_refused_and_named(federation):
    file, _ = federation
    folder = Path(step_of(file)["folder"])
    for client, b in HONEST.items():
        answer(folder, client, b)
    answer(folder, "other", [[1, 0], [0, 0]], alike="cd" * 8)
    answer(folder, "broken", [[np.nan, 0], [0, 0]])
    answer(folder, "failing", None, refused="failed")
    answer(folder, "liar", [[1, 0], [0, 0]], examples=-5)
    answer(folder, "pickled", None)
    (folder / "answers/pickled/adapter.safetensors").write_bytes(b"\x80\x04evil")
    refused = Server(FederationConfig.load(file)).close(folder)["refused"]
    assert refused["other"] == "other environment"
    assert refused["failing"] == "failed"
    assert "not finite" in refused["broken"]
    assert "examples" in refused["liar"]
    assert "not an adapter" in refused["pickled"]


def test_a_killed_server_goes_on_with_the_step_that_was_not_closed(federation):
    file, _ = federation
    first = step_of(file)
    answer(Path(first["folder"]), "ash", HONEST["ash"])
    assert step_of(file) == first  # as often as it is started
    with pytest.raises(DataError, match=r"participation.least is 2, and 1 clients can be used"):
        Server(FederationConfig.load(file)).close(Path(first["folder"]))
    answer(Path(first["folder"]), "birch", HONEST["birch"])
    assert Server(FederationConfig.load(file)).close(Path(first["folder"]))["clients"] == ["ash", "birch"]


@pytest.mark.parametrize(
    "how",
    [
        {"combine": "median", "method": "frozen_a"},
        {"combine": "trimmed_mean"},
        {"combine": "krum"},
        {"method": "stacked"},
        {"method": "plain"},
    ],
)
def test_every_way_bears_an_attacker_or_averages(federation, how):
    file, _ = federation
    values = yaml.safe_load(file.read_text())
    values |= {"aggregation": how, "defence": None}
    file.write_text(yaml.safe_dump(values))
    attackers = {"viper": [[-10, 0], [0, 0]]} if "combine" in how else {}
    folder, _ = play(file, {**HONEST, "fir": [[1, 0], [0, 0]], **attackers})
    after = read_adapter(folder / "next.safetensors")
    assert (after[B] @ after[A])[0, 0] == pytest.approx(1.0, abs=1e-5)


def test_forgetting_names_the_rounds_and_trains_again_without_them(federation):
    file, out = federation
    for answers in (HONEST, {**HONEST, "fir": HONEST["ash"]}):
        folder, record = play(file, answers)
        validated = folder.parent / f"{record['round']:03d}-validate"
        step_of(file)
        for client in HONEST:
            answer(validated, client, None, counts={"tasks": 10, "before": 5, "after": 6, "gained": 1, "lost": 0})
        Server(FederationConfig.load(file)).close(validated)
    found = forgetting(out, "fir")
    assert found["rounds"] == [2]
    assert found["clean"] == 1
    with pytest.raises(DataError, match="oak: took part in no round"):
        forgetting(out, "oak")
    assert forget(Options(federation=str(file), client="fir", discard=True))["discarded"]
    assert step_of(file)["round"] == 2
    assert held(out) == {"fir": "forgotten"}
    _, record = play(file, {**HONEST, "fir": HONEST["ash"]})
    assert record["clients"] == ["ash", "birch", "cedar"]


def test_the_page_shows_rounds_gains_and_who_looked_odd(federation):
    file, out = federation
    file.write_text(file.read_text().replace("rounds: 3", "rounds: 1"))
    folder, _ = play(file, {**HONEST, "viper": [[-10, 0], [0, 0]], "liar": [[np.nan, 0], [0, 0]]})
    page = out / "federation.html"
    assert "have not judged" in page.read_text()
    counts = {"tasks": 40, "before": 10, "after": 22, "gained": 14, "lost": 2}
    for work in ("validate", "judge"):
        assert step_of(file)["work"] == work
        for client in HONEST:
            answer(folder.parent / f"001-{work}", client, None, counts=counts)
        if work == "validate":
            Server(FederationConfig.load(file)).close(folder.parent / "001-validate")
    rounds = [json.loads(each.read_text()) for each in sorted(out.glob("rounds/*/round.json"))]
    verdict = {"work": "judge", "verdict": verdict_of({name: Counts(**counts) for name in HONEST} | {"viper": None}, 0.02)}
    write_federation_page(
        {"federation": "woods", "rounds": rounds[:1], "verdicts": [*rounds[1:], verdict]}, out, {"viper": "<b>left out</b>"}
    )
    text = re.sub(r"<[^>]+>", " ", page.read_text())
    assert "Promoted. sent no counts: viper." in text
    # 14 gained and 2 lost of 40: 12 of 40 are 30 points; (14.5 - 2.5) / 42, plus and minus 1.96 roots of (17 - 144 / 42) / 42².
    assert re.search(r"ash\s+25.0%\s+55.0%\s+\+30.0 \(\+11.4 to \+45.8\)\s+40\s+not worse", text)
    assert re.search(r"viper\s+✗ \d+\.\d, -\d\.\d\d", text)
    assert re.search(r"liar\s+1\s+.*not finite", text)
    assert "&lt;b&gt;left out" in page.read_text()


def test_a_verdict_names_those_harmed_and_those_who_cannot_tell():
    counts = lambda **values: Counts(**{"tasks": 100, "before": 50, "after": 50, "gained": 0, "lost": 0, **values})  # noqa: E731
    said = {
        "ash": counts(after=80, gained=32, lost=2),
        "birch": counts(after=30, lost=20),
        "cedar": counts(tasks=6, before=3, after=3, gained=1, lost=1),
        "elm": None,
    }
    verdict = verdict_of(said, 0.1)
    assert verdict["harmed"] == ["birch"]
    assert verdict["undecided"] == ["cedar"]
    assert verdict["silent"] == ["elm"]
    assert not verdict["promoted"]
    assert verdict_of({"ash": said["ash"]}, 0.1)["promoted"]
    assert not verdict_of({}, 0.1)["promoted"]  # nobody said anything
    # 32 gained, 2 lost of 100: (32.5 - 2.5) / 102, plus and minus 1.96 roots of (35 - 900 / 102) / 102².
    assert interval_of(said["ash"]) == pytest.approx((0.1958, 0.3925), abs=5e-4)


def test_orders_and_files_are_checked(tmp_path):
    with pytest.raises(ConfigError, match="federation: String should match"):
        Order.checked({"federation": "../up", "round": 1, "work": "train", "alike": ALIKE}, "order.json")
    with pytest.raises(ConfigError, match="profile_to_run: Extra inputs"):
        Order.checked({"federation": "a", "round": 1, "work": "train", "alike": ALIKE, "profile_to_run": "x"}, "order.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        ClientConfig.load(tmp_path / "none.yaml")
    (tmp_path / "list.yaml").write_text("[1, 2")
    with pytest.raises(ConfigError, match="is not YAML"):
        ClientConfig.load(tmp_path / "list.yaml")
