"""`tracewheel describe`: what is built in, and what a kind of one's own takes and offers."""

import json

import pytest

from flows import cli
from flows.commands.describe import built_in, missing

WORLD = '''
"""Worlds."""
from pydantic import BaseModel, Field


class World:
    """A small world."""

    class Args(BaseModel):
        """What it takes.

        Attributes:
            name: Its name,
                in two lines.
        """

        name: str
        size: int = Field(3, gt=0, description="How large it is.")

    kind = "worlds_of_mine:World"

    def __init__(self, args):
        pass

    def step(self, tool, args):
        pass

    def tools(self):
        look = {"name": "look", "description": "Look.", "parameters": {"properties": {"at": {}}}}
        return [{"type": "function", "function": look}]


class Plain(World):
    Args = None

    def __init__(self, depth: int = 2):
        self.depth = depth


class Broken(Plain):
    def __init__(self):
        raise RuntimeError("no map")


NUMBER = 3
'''


@pytest.fixture
def described(tmp_path, monkeypatch, capsys):
    (tmp_path / "worlds_of_mine.py").write_text(WORLD)
    monkeypatch.syspath_prepend(tmp_path)

    def run(kind):
        assert cli.main(["describe", kind, "--json"]) == cli.DONE
        return json.loads(capsys.readouterr().out)["described"]

    return run


def test_the_list_has_every_built_in_kind_with_a_summary(capsys):
    assert cli.main(["describe", "--json"]) == cli.DONE
    listed = json.loads(capsys.readouterr().out)["kinds"]
    kinds = built_in()
    away = {(one["sort"], one["kind"]) for one in missing(kinds)}  # of wheels that are not installed
    assert {(one["sort"], one["kind"]) for one in listed} - away == {
        (sort, name) for sort, named in kinds.items() for name in named
    }
    assert {"environment", "verifier", "simulated user", "log reader", "log format"} == {one["sort"] for one in listed}
    assert [one for one in listed if not one["summary"].strip()] == []


def test_a_class_of_ones_own_with_a_model(described):
    (world,) = described("worlds_of_mine:World")
    assert (world["sort"], world["doc"]) == ("environment", "A small world.")
    assert world["args"] == [
        {"name": "name", "type": "str", "default": None, "description": "Its name, in two lines."},
        {"name": "size", "type": "int (gt=0)", "default": "3", "description": "How large it is."},
    ]
    assert world["tools"] is None and "args.name: Field required" in world["no_tools"]


def test_a_class_of_ones_own_with_keywords_shows_its_tools(described):
    (plain,) = described("worlds_of_mine:Plain")
    assert plain["args"] == [{"name": "depth", "type": "int", "default": "2", "description": ""}]
    assert [tool["function"]["name"] for tool in plain["tools"]] == ["look"]
    assert plain["doc"] == ""


def test_an_environment_shows_what_it_offers_beyond_its_protocol(described, capsys):
    """Which commands can use it: hindsight wants a `GoalFinder`, self-play a `TaskMaker`."""
    (plain,) = described("worlds_of_mine:Plain")
    assert plain["offers"] == {}
    (workspace, _) = described("workspace")
    assert workspace["offers"]["GoalFinder"] == "that can read a goal from a final state, for hindsight demonstrations."
    assert "TaskMaker" in workspace["offers"] and "OpeningProvider" not in workspace["offers"]
    assert cli.main(["describe", "order_desk"]) == cli.DONE
    shown = capsys.readouterr().out
    assert "TaskMaker" in shown and "GoalFinder" not in shown


def test_a_class_that_raises_is_described_all_the_same(described):
    (broken,) = described("worlds_of_mine:Broken")
    assert "no map" in broken["no_tools"]


def test_a_name_of_two_sorts_shows_both(capsys):
    assert cli.main(["describe", "refund_desk"]) == cli.DONE
    shown = capsys.readouterr().out
    for text in (
        "refund_desk: environment",
        "refund_desk: verifier",
        "user.kind",
        '"scripted"',
        "find_order(order)",
        "no arguments",
    ):
        assert text in shown


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("workspce", "no kind is called 'workspce'; built in: "),
        ("no_such_module:World", "'no_such_module:World' cannot be imported"),
        ("tracewheel.core.kinds:build", "is no class but a function"),
    ],
)
def test_a_wrong_name_is_bad_input(kind, says, capsys):
    assert cli.main(["describe", kind]) == cli.BAD_INPUT
    assert says in capsys.readouterr().err
