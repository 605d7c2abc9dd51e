"""Kinds with arguments: their text, what is built from them, and what a newcomer is told who gets one wrong."""

import pytest
from pydantic import BaseModel, Field

from tracewheel.config import EnvironmentConfig, RetrainConfig, RubricConfig
from tracewheel.core.errors import ConfigError
from tracewheel.core.fingerprint import own_modules
from tracewheel.core.kinds import Kind, build, kind_text, parse_kind


class Plain:
    def __init__(self, size: int = 1, *, name: str = "x") -> None:
        self.size, self.name = size, name


class Nothing:
    pass


class Shop:
    class Args(BaseModel):
        size: int = Field(3, ge=1)
        names: list[str] = []

    def __init__(self, args: Args | None = None) -> None:
        self.args = args or self.Args()


class Strict:
    class Args(BaseModel):
        path: str

    def __init__(self, args: Args) -> None:
        self.path = args.path


BUILT_IN = {"plain": Plain, "nothing": Nothing, "shop": Shop, "strict": Strict}


def test_text_and_back():
    assert kind_text("workspace") == kind_text("workspace", {}) == "workspace"
    text = kind_text("my_shop:Shop", {"size": 2, "names": ["é"]})
    assert text == '{"args":{"names":["é"],"size":2},"kind":"my_shop:Shop"}'
    assert parse_kind(text) == Kind("my_shop:Shop", {"size": 2, "names": ["é"]}) and parse_kind(text).text == text
    assert parse_kind("recorded:/a/{b}") == Kind("recorded:/a/{b}", {})
    for wrong in ("{", '{"kind": 1}', '{"kind": "x", "args": []}', '{"kind": "x", "arg": {}}'):
        with pytest.raises(ConfigError, match="a kind with arguments is"):
            parse_kind(wrong)


def test_classes_are_made_from_their_arguments():
    made = build(Kind("plain", {"size": 4, "name": "y"}), BUILT_IN, "thing")
    assert (made.size, made.name) == (4, "y")
    assert build(Kind("shop", {}), BUILT_IN, "thing").args.size == 3
    assert build(Kind("shop", {"names": ["a"]}), BUILT_IN, "thing").args.names == ["a"]
    assert build(Kind("strict", {"path": "p"}), BUILT_IN, "thing").path == "p"


@pytest.mark.parametrize(
    ("kind", "args", "said"),
    [
        ("shop", {"sise": 2}, "thing 'shop': args.sise: no such argument; it takes names, size"),
        ("shop", {"size": "many"}, "thing 'shop': args.size: Input should be a valid integer"),
        ("shop", {"size": 0}, "thing 'shop': args.size: Input should be greater than or equal to 1"),
        ("shop", {"names": ["a", 1]}, "thing 'shop': args.names.1: Input should be a valid string"),
        ("strict", {}, "thing 'strict': args.path: Field required"),
        ("plain", {"sise": 2}, "thing 'plain': args.sise: no such argument; it takes name, size"),
        ("nothing", {"x": 1}, "thing 'nothing': args.x: no such argument; it takes no arguments"),
        ("no_such", {}, "no thing is called 'no_such'; built in: nothing, plain, shop, strict"),
    ],
)
def test_wrong_arguments_are_named(kind, args, said):
    with pytest.raises(ConfigError) as caught:
        build(Kind(kind, args), BUILT_IN, "thing")
    assert str(caught.value).startswith(said)


def test_sections_of_a_profile():
    assert EnvironmentConfig(kind="recorded", args={"path": "data/x"}) == EnvironmentConfig(kind="recorded:data/x")
    with pytest.raises(ValueError, match="takes one argument, path"):
        EnvironmentConfig(kind="recorded", args={"folder": "x"})
    config = RetrainConfig.model_validate({"name": "x", "environment": {"kind": "my:World", "args": {"n": 1}}})
    assert config.environment.spec == '{"args":{"n":1},"kind":"my:World"}'
    assert (
        RubricConfig(verifiers=[{"kind": "my:Check", "args": {"n": 1}}]).verifiers[0].spec
        == '{"args":{"n":1},"kind":"my:Check"}'
    )
    with pytest.raises(ValueError, match="each task names its verifier"):
        RubricConfig(verifiers=[{"kind": "task", "args": {"n": 1}}])


def test_the_modules_of_a_kind_are_those_within_its_arguments_too():
    text = kind_text(
        "my.world:World", {"user": {"kind": "my.users:Rude", "args": {"url": "http://x:1"}}, "tools": [{"kind": "plain"}]}
    )
    assert own_modules([text, "workspace", "other:Check"]) == ("my.users", "my.world", "other")
