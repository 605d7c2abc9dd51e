"""The study of membership inference at its smallest: two houses, and an adapter that has learnt nothing."""

import numpy as np
import pytest

from plugins.federated.benchmarks.membership import area, area_with_interval, membership
from tracewheel_federated.client_work import Client
from tracewheel_federated.settings import ClientConfig
from tracewheel_federated.states import untrained


def test_the_area_is_the_chance_that_a_member_scores_higher():
    member = np.array([True, True, False, False])
    assert area(np.array([3.0, 1.0, 2.0, 0.0]), member) == 0.75  # three of four pairs
    assert area(np.array([1.0, 1.0, 1.0, 1.0]), member) == 0.5
    assert area_with_interval(np.array([3.0, 3.0, 0.0, 0.0]), member, np.array(list("aabb"))) == [1.0, 1.0, 1.0]


def test_an_adapter_that_learnt_nothing_tells_nothing(make_client, tmp_path):
    for name, first in (("north", 0), ("south", 60)):
        client = Client(ClientConfig.load(make_client(name, first)))
        client._curated()
    found = membership(tmp_path, untrained(client.config, client.out / "untrained"), ["north", "south"])
    assert found["members"] > 0
    assert found["others"] > 0
    assert found["reference"] == [0.5, 0.5, 0.5]  # no loss has moved
    assert found["loss"] == pytest.approx(found["base"])
