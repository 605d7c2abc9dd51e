"""The examples: docstrings of kinds run, and the form is filled in and judged as its arguments say."""

import doctest
import importlib
import sys

import pytest
import yaml

from examples.episode_verifier import Filled
from flows.commands.describe import built_in
from tracewheel.config import EnvironmentConfig
from tracewheel.core.kinds import args_model, checked_args, kind_text
from tracewheel.environments import make_environment
from tracewheel.scoring.verifiers import episode_from, make_verifier

BUILT_IN = {f"{sort} {name}": found for sort in ("environment", "verifier") for name, found in built_in()[sort].items()}
OWN = ["examples.form_environment:Form", "examples.episode_verifier:Filled"]
OWN += [f"examples.marketing_environment:{name}" for name in ("Marketing", "MarketingCheck")]
OWN += ["tracewheel.chat.formats.base:ToolFormat"]
FORM = "examples.form_environment:Form"


def run_doctest(found):
    tests = doctest.DocTestFinder(recurse=False).find(found, found.__name__, globs=dict(vars(sys.modules[found.__module__])))
    assert sum(len(test.examples) for test in tests) > 0, "no example"
    for test in tests:
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
        assert runner.run(test).failed == 0


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_kinds_docstring_opens_with_an_example_that_runs(name):
    found = BUILT_IN[name]
    opening = found.__doc__.split("\n\n")[1].strip()
    if opening.startswith("```yaml"):
        profile = yaml.safe_load(opening.removeprefix("```yaml").removesuffix("```"))
        config = EnvironmentConfig.model_validate(profile["environment"])
        assert config.kind.split(":")[0] == name.removeprefix("environment ")
        if model := args_model(found):
            checked_args(model, config.args, name)
        return
    assert opening.startswith(">>> ")
    run_doctest(found)


@pytest.mark.parametrize("kind", OWN)
def test_the_examples_docstrings_run(kind):
    module, _, name = kind.partition(":")
    run_doctest(getattr(importlib.import_module(module), name))


def play(answers, args=None):
    """What the form says to each answer, and the verdict on the episode."""
    form = make_environment(kind_text(FORM, args))
    task = form.task_from_log("Book for Ada on 23 November.", {"goal": {"name": "Ada", "date": "2026-11-23"}})
    form.reset(task)
    messages, seen = [{"role": "user", "content": task.prompt}], []
    for answer in answers:
        seen.append(form.reply(answer))
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": seen[-1].text}]
    verifier = make_verifier(kind_text("examples.episode_verifier:Filled", {"most_turns": 2}))
    assert isinstance(verifier, Filled)
    return seen, verifier.verify_episode(task, episode_from(messages, 1, form.snapshot()))


def test_a_form_filled_in_as_asked():
    seen, verdict = play(["Ada", "2026-11-23"])
    assert [(one.text, one.done) for one in seen] == [("And the date?", False), ("Thank you.", True)]
    assert (verdict.total, verdict.answer, verdict.explanation) == (1.0, "name=Ada, date=2026-11-23", "all as asked")


def test_a_wrong_date_is_asked_for_again_and_costs_turns():
    seen, verdict = play(["Ada", "soon", "2026-11-23"])
    assert [(one.error, one.done) for one in seen] == [(False, False), (True, False), (False, True)]
    assert (verdict.total, verdict.explanation) == (0.5, "3 turns, where 2 are enough")


def test_the_forms_patience_is_an_argument():
    seen, verdict = play(["Ada", "soon"], {"patience": 1})
    assert seen[-1].done and (verdict.total, verdict.parts["right"]) == (0.0, 0.5)
