"""The check of a project around a program: what it prints, and what the model said."""

import pytest

from tracewheel import Episode, Task
from tracewheel.scoring.flaws import offered_tools
from tracewheel_projects.around.verifier import RightAnswer

# As OpenHands 1.16 ends: its answer in a box, and more below.
BOXED = (
    "│ one, two │\n╰──────────╯\n────────────\nGoodbye!\nConversation ID: 01d0256af833441293e26f0550c03b3d\nHint: resume\nit\n"
)


@pytest.mark.parametrize(
    ("printed", "said", "right"),
    [
        ("thinking\none, two\n", "", 1.0),
        ("one, two\ncost: $0.01\nlog: /tmp/a\n", "I am done.", 1.0),
        (BOXED, "one, two", 1.0),
        (BOXED, "one", 0.0),
        ("one, two, three\n", "not one, two", 0.0),
        ("one, two\n1\n2\n3\n4\n5\n", "", 0.0),
        (None, "one, two", 1.0),
        (None, "", 0.0),
    ],
)
def test_the_answer_is_one_of_the_last_lines(printed, said, right):
    task = Task("a", "b", "questions", 1, "Repeat: one, two", {}, {"answer": "one, two"}, RightAnswer.kind, "a")
    state = {} if printed is None else {"program": {"output": printed, "exit_code": 0}}
    verdict = RightAnswer().verify_episode(task, Episode((), 0, (), said, state))
    assert verdict.total == right


def test_a_program_s_own_tools_are_not_invented_ones():
    assert offered_tools("tracewheel_projects.around.tasks:Questions") is None
