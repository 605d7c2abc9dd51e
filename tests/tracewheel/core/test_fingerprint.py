"""Fingerprints: a stage's code and its imports, packages, and the user's classes."""

import pytest

from tracewheel.core import fingerprint
from tracewheel.core.fingerprint import code_version, package_versions, plugin_modules


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
    code_version.cache_clear()


def version(module):
    code_version.cache_clear()
    return code_version(module)


def test_lazy_imports_change_the_code_version(package):
    before = version("tracewheel.stage")
    (package / "deep" / "helper.py").write_text("VALUE = 2\n")
    assert version("tracewheel.stage") != before


def test_modules_that_a_text_names_as_a_whole_package_change_the_code_version(package):
    (package / "stage.py").write_text('MODULES = "tracewheel.deep.*"\n')
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


def test_a_named_template_changes_the_code_version(package):
    (package / "stage.py").write_text('PAGE = "page.html"\n')
    for name in ("page.html", "other.html"):
        (package / name).write_text("<p>")
    before = version("tracewheel.stage")
    (package / "other.html").write_text("<div>")
    assert version("tracewheel.stage") == before
    (package / "page.html").write_text('{% extends "frame.html" %}')
    (package / "frame.html").write_text("<p>")
    after = version("tracewheel.stage")
    assert after != before
    (package / "frame.html").write_text("<div>")
    assert version("tracewheel.stage") != after


def test_a_plugin_changes_the_code_version(package, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine.py").write_text("class Verifier: ...\n")
    plain = version("tracewheel.stage")
    with_plugin = code_version("tracewheel.stage", ("mine",))
    (tmp_path / "mine.py").write_text("class Verifier: x = 1\n")
    code_version.cache_clear()
    assert len({plain, with_plugin, code_version("tracewheel.stage", ("mine",))}) == 3


def test_only_plugins_have_modules():
    assert plugin_modules(["workspace", "mine.verifiers:Exact", "mine.verifiers:Other", "task"]) == ("mine.verifiers",)


def test_versions_of_installed_packages():
    assert set(package_versions(("torch", "no-such-package"))) == {"torch"}
