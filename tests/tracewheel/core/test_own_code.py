"""Calls into a user's class: what is said of a wrong result and of an exception, and what passes as it is."""

import pytest

from tracewheel.core.errors import DataError
from tracewheel.core.own_code import OwnCodeError, described, guard, named


def is_text(value):
    return "" if isinstance(value, str) else "a text"


class Own:
    def say(self, what):
        return what

    def fail(self):
        return {}["key"]

    def refuse(self):
        raise DataError("the log has no such field")


class Slotted:
    __slots__ = ()

    def say(self):
        return 1


def guarded(made, **checks):
    guard(made, "mine:Own", "environment", checks)
    return made


def test_a_right_result_passes_and_a_wrong_one_names_class_method_and_line():
    own = guarded(Own(), say=is_text)
    assert own.say("yes") == "yes"
    with pytest.raises(
        OwnCodeError, match=r"environment 'mine:Own': say returns an int; it is to return a text \(test_own_code"
    ):
        own.say(3)
    with pytest.raises(OwnCodeError, match="say returns None; "):
        own.say(None)


def test_an_exception_stays_what_it_is_and_is_described_with_the_user_s_line():
    own = guarded(Own(), fail=is_text)
    with pytest.raises(KeyError) as raised:
        own.fail()
    said = described(raised.value)
    assert said.startswith("environment 'mine:Own': fail raises KeyError: 'key' (test_own_code.py, line ")
    assert 'return {}["key"]' in said and named(raised.value) == said


def test_an_error_that_is_meant_for_people_passes_unmarked():
    with pytest.raises(DataError) as raised:
        guarded(Own(), refuse=is_text).refuse()
    assert described(raised.value) is None and named(raised.value) == "DataError: the log has no such field"


def test_a_class_with_slots_is_left_as_it_is():
    assert guarded(Slotted(), say=is_text).say() == 1


def test_methods_that_a_class_lacks_are_left_out():
    assert not hasattr(guarded(Own(), reply=is_text), "reply")
