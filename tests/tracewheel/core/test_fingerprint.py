"""Fingerprints: a stage's code and its imports, packages, and the user's classes."""

import pytest

from tracewheel.core import fingerprint
from tracewheel.core.fingerprint import UNKNOWN, code_parts, code_version, own_code, own_modules, package_versions


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package in which `stage` imports `helper` lazily and `other` is unrelated."""
    root = tmp_path / "tracewheel"
    (root / "deep").mkdir(parents=True)
    (root / "__init__.py").write_text("")
    (root / "deep" / "__init__.py").write_text("")
    (root / "deep" / "helper.py").write_text("VALUE = 1\n")
    (root / "stage.py").write_text("def run():\n    from tracewheel.deep import helper\n    return helper.VALUE\n")
    (root / "other.py").write_text("VALUE = 1\n")
    monkeypatch.setattr(fingerprint, "PACKAGE", root)
    yield root
    fingerprint._parts_of.cache_clear()


def version(module):
    fingerprint._parts_of.cache_clear()
    return code_version(module)


def test_lazy_imports_change_the_code_version(package):
    before = version("tracewheel.stage")
    (package / "deep" / "helper.py").write_text("VALUE = 2\n")
    assert version("tracewheel.stage") != before


def test_comments_and_unrelated_modules_leave_the_code_version(package):
    before = version("tracewheel.stage")
    (package / "deep" / "helper.py").write_text("# why it is 1\nVALUE = 1\n")
    (package / "other.py").write_text("VALUE = 2\n")
    assert version("tracewheel.stage") == before


@pytest.mark.parametrize(
    "template",
    [
        "{}\nVALUE = 1\n",
        "class A:\n    {}\n    x = 1\n",
        "def f():\n    {}\n    return 1\n",
        "async def f():\n    {}\n    return 1\n",
    ],
)
def test_docstrings_leave_the_code_version(package, template):
    helper = package / "deep" / "helper.py"
    versions = set()
    for docstring in ("", '"""One wording."""', '"""Another."""'):
        helper.write_text(template.format(docstring))
        versions.add(version("tracewheel.stage"))
    assert len(versions) == 1


def test_other_strings_change_the_code_version(package):
    helper = package / "deep" / "helper.py"
    helper.write_text('def f():\n    return "one"\n')
    before = version("tracewheel.stage")
    helper.write_text('def f():\n    return "two"\n')
    assert version("tracewheel.stage") != before


def test_files_beside_a_module_change_the_code_version_and_pages_do_not(package):
    (package / "stage.py").write_text("from tracewheel.deep import helper\n")
    box = package / "deep" / "box"
    box.mkdir()
    seen = [version("tracewheel.stage")]
    for path, text in (
        (package / "deep" / "words.txt", "one\n"),
        (box / "run.py", "print(1)\n"),
        (box / "run.py", "print(2)\n"),
    ):
        path.write_text(text)
        seen.append(version("tracewheel.stage"))
    assert len(set(seen)) == len(seen)
    (package / "deep" / "page.html").write_text("<p>")
    assert version("tracewheel.stage") == seen[-1]


def test_imports_for_types_and_the_config_leave_the_code_version(package):
    (package / "config.py").write_text("DEFAULT = 1\n")
    (package / "stage.py").write_text(
        "from typing import TYPE_CHECKING\nfrom tracewheel.config import DEFAULT\n"
        "if TYPE_CHECKING:\n    from tracewheel.other import VALUE\n"
    )
    before = version("tracewheel.stage")
    (package / "config.py").write_text("DEFAULT = 2\n")
    (package / "other.py").write_text("VALUE = 2\n")
    assert version("tracewheel.stage") == before


def test_of_the_public_door_the_module_of_the_name_counts(package):
    (package / "core").mkdir()
    for name in ("__init__", "errors", "types"):
        (package / "core" / f"{name}.py").write_text("VALUE = 1\n")
    (package / "stage.py").write_text("from tracewheel import DataError\n")
    before = version("tracewheel.stage")
    for name, same in (("types", True), ("errors", False)):
        (package / "core" / f"{name}.py").write_text("VALUE = 2\n")
        assert (version("tracewheel.stage") == before) == same


def test_a_kind_of_a_wheel_counts_with_its_own_package(package, tmp_path, monkeypatch):
    wheel = tmp_path / "tracewheel_shops"
    wheel.mkdir()
    (wheel / "__init__.py").write_text("")
    (wheel / "shop.py").write_text("from tracewheel.deep.helper import VALUE\nfrom .goods import GOODS\n")
    (wheel / "goods.py").write_text("GOODS = 1\n")
    monkeypatch.syspath_prepend(tmp_path)

    def parts():
        fingerprint._parts_of.cache_clear()
        return code_parts("tracewheel.stage", "tracewheel_shops.shop")

    before = parts()
    assert before.keys() >= {"tracewheel_shops.shop", "tracewheel_shops.goods", "tracewheel.deep.helper"}
    (wheel / "goods.py").write_text("GOODS = 2\n")
    after = parts()
    assert {name for name in before if before[name] != after[name]} == {"tracewheel_shops.goods"}


def test_a_plugin_changes_the_code_version(package, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine.py").write_text("class Verifier: ...\n")
    plain = version("tracewheel.stage")
    with_plugin = code_version("tracewheel.stage", plugins=("mine",))
    (tmp_path / "mine.py").write_text("class Verifier: x = 1\n")
    fingerprint._parts_of.cache_clear()
    assert len({plain, with_plugin, code_version("tracewheel.stage", plugins=("mine",))}) == 3


def test_a_package_that_raises_when_it_is_imported_ends_nothing(tmp_path, monkeypatch):
    """An optional part of a library says so with an error of its own; only modules within it look for it by an import."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "world_of_mine.py").write_text("def film():\n    from library_of_others.film import save\n")
    (tmp_path / "library_of_others" / "film").mkdir(parents=True)
    (tmp_path / "library_of_others" / "__init__.py").write_text("")
    (tmp_path / "library_of_others" / "film" / "__init__.py").write_text("raise RuntimeError('moviepy is not installed')\n")
    assert own_code("world_of_mine:World") not in ("", UNKNOWN)


def test_only_plugins_have_modules():
    assert own_modules(["workspace", "mine.verifiers:Exact", "mine.verifiers:Other", "task"]) == ("mine.verifiers",)


def test_versions_of_installed_packages():
    assert set(package_versions(("torch", "no-such-package"))) == {"torch"}
