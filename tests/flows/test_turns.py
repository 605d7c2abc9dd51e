"""One run at a time for each champion: who waits, and what is said when the other does not end."""

import threading
import time

import pytest
import yaml

from flows.deploy.turns import champion_key, in_turn
from flows.setup import resolve_config
from tracewheel.config import load_config


@pytest.fixture
def profiles(profile, tmp_path):
    """Two profiles of one champion, and one of another."""
    values = yaml.safe_load(profile.read_text()) | {"schedule": {"wait_seconds": 0}}
    paths = []
    for name, model in [("nightly", "agent"), ("weekly", "agent"), ("other", "another-agent")]:
        tracking = {"uri": f"sqlite:///{tmp_path}/mlflow.db", "model_name": model}
        paths.append(tmp_path / f"{name}.yaml")
        paths[-1].write_text(yaml.safe_dump(values | {"name": name, "tracking": tracking}))
    return [str(path) for path in paths]


def turn(profile, tmp_path, *, scheduled=True, wait=0):
    config = resolve_config(profile, [f"schedule.wait_seconds={wait}"], str(tmp_path / "runs"))
    return in_turn(config, scheduled=scheduled)


def test_a_run_of_another_profile_on_the_same_champion_is_skipped_with_its_reason(profiles, tmp_path):
    nightly, weekly, other = profiles
    with turn(nightly, tmp_path) as first:
        assert not first
        with turn(weekly, tmp_path) as second, turn(other, tmp_path) as third:
            assert second.startswith("run by hand (process ")
            assert second.endswith("works on the same champion (agent) and did not end within 0 s (schedule.wait_seconds)")
            assert not third
    with turn(weekly, tmp_path) as later:
        assert not later


def test_a_scheduled_run_waits_for_the_other_to_end(profiles, tmp_path):
    nightly, weekly, _ = profiles
    order, held = [], threading.Event()

    def first():
        with turn(nightly, tmp_path):
            held.set()
            time.sleep(0.5)
            order.append("first ends")

    thread = threading.Thread(target=first)
    thread.start()
    held.wait(60)
    with turn(weekly, tmp_path, wait=60) as in_the_way:
        assert not in_the_way
        order.append("second begins")
    thread.join()
    assert order == ["first ends", "second begins"]


def test_a_run_by_hand_waits_for_nobody_and_is_waited_for(profiles, tmp_path):
    nightly, weekly, _ = profiles
    with turn(nightly, tmp_path), turn(weekly, tmp_path, scheduled=False) as by_hand:
        assert not by_hand
    with turn(weekly, tmp_path, scheduled=False), turn(nightly, tmp_path) as in_the_way:
        assert in_the_way


def test_a_registry_is_one_however_it_is_named(profiles, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    absolute, relative = load_config(profiles[0]), load_config(profiles[0], ["tracking.uri=sqlite:///mlflow.db"])
    served = [
        load_config(profiles[0], [f"tracking.uri=http://{who}host:5000{end}"]) for who, end in [("", ""), ("me:secret@", "/")]
    ]
    assert champion_key(absolute) == champion_key(relative) != champion_key(served[0])
    assert champion_key(served[0]) == champion_key(served[1])
