"""Simulated users: the scripted one, and the check that tells a user's mistakes from the agent's."""

import pytest

from tracewheel.core.errors import ConfigError, DataError
from tracewheel.environments.users import CheckedUser, Fact, ScriptedUser, UserBrief, UserConfig, UserTurn, make_user

BRIEF = UserBrief(
    instruction="You are Ann and want your money back.",
    prompt="I want my money back for the kettle.",
    facts=(
        Fact("order", "K7", r"\bnumber\b", ("It is K7.",)),
        Fact("order", "B3", r"\bnumber\b", ("It is B3.",)),
        Fact("used", "not used", r"\bused\b", ("No.", "Never."), r"\bI used it\b"),
    ),
    unknown=frozenset({"C9", "K7"}),
    values=r"\b[A-Z][0-9]\b",
    change="Sorry, I mean B3.",
)


class Parrot:
    """Says what it is given, one text a turn."""

    kind, repeatable = "parrot", True

    def __init__(self, *texts):
        self.texts = list(texts)

    def begin(self, brief):
        pass

    def reply(self, said):
        return UserTurn(self.texts.pop(0))


def answers(user, *said, brief=BRIEF):
    checked = CheckedUser(user)
    checked.begin(brief)
    return [checked.answer(text) for text in said]


def test_the_script_answers_changes_its_mind_once_and_leaves():
    said = answers(ScriptedUser(), "Your number?", "The number again, please?", "Was it used?", "Well.", "Well, well.")
    assert said[0].text == "It is K7. Sorry, I mean B3."
    assert said[1].text == "It is B3."
    assert said[2].text in ("No.", "Never.")
    assert not said[3].done and said[4].done
    assert not any(observation.fault for observation in said)


def test_two_questions_at_once_get_two_answers():
    (said,) = answers(ScriptedUser(), "What is the number, and was it used?")
    assert "K7" in said.text and ("No." in said.text or "Never." in said.text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "says nothing"),
        (" \n", "says nothing"),
        ("It is K7. Ben's is C9.", "tells what it cannot know: 'C9'"),
        ("It is D4.", "makes a value up: 'D4'"),
        ("I used it twice.", "contradicts its facts: 'I used it', but used is not used"),
        ("How can I help you today?", "answers as an assistant"),
        ("I have processed your refund.", "answers as an assistant"),
        ('<tool_call>{"name": "refund"}', "answers as an assistant"),
    ],
)
def test_a_user_that_errs_ends_the_episode_as_its_own_fault(text, reason):
    (observation,) = answers(Parrot(text), "Your number?")
    assert observation.fault == "user" and reason in observation.text


@pytest.mark.parametrize("text", ["It is K7.", "No, it is not C9, it is K7.", "Thanks! I never used it.", "B3, as I said."])
def test_a_user_may_say_what_it_knows_and_what_it_heard(text):
    (observation,) = answers(Parrot(text), "Is it C9?")
    assert not observation.fault and observation.text == text


def test_a_loop_is_the_same_answer_to_different_messages():
    questions = ["Hello?", "Are you there?", "What is the matter?", "Shall I close this?"]
    assert answers(Parrot(*["I see."] * 4), *questions)[-1].fault == "user"
    assert not answers(Parrot(*["I see."] * 4), *["Hello?"] * 4)[-1].fault, "the agent repeats itself"


def test_problems_that_a_user_reports_are_its_fault():
    class CutOff(Parrot):
        def reply(self, said):
            return UserTurn("I want", problem="cut off")

    (observation,) = answers(CutOff(), "Hello?")
    assert (observation.fault, observation.text) == ("user", "cut off")


def test_users_by_name():
    assert isinstance(make_user(UserConfig()), ScriptedUser)
    with pytest.raises(ConfigError, match="no user is called 'nobody'"):
        make_user(UserConfig(kind="nobody"))
    with pytest.raises(ConfigError, match="user 'scripted': args"):
        make_user(UserConfig(args={"mood": "bad"}))
    with pytest.raises(ConfigError, match=r"user 'endpoint': args.endpoint: Field required"):
        make_user(UserConfig(kind="endpoint"))


def test_a_talk_goes_on_where_it_was_left():
    left, went_on = CheckedUser(ScriptedUser()), CheckedUser(ScriptedUser())
    left.begin(BRIEF)
    left.answer("Your number?")
    went_on.resume(BRIEF, left.talk())
    assert went_on.talk() == [["Your number?", "It is K7. Sorry, I mean B3."]]
    for said in ("The number again, please?", "Well.", "Well, well."):
        assert went_on.answer(said) == left.answer(said)
    with pytest.raises(DataError, match="answers 'Your number"):
        CheckedUser(ScriptedUser()).resume(BRIEF, [["Your number?", "It is Q9."]])


def test_a_user_that_is_a_model_goes_on_only_if_it_says_how():
    class Model(Parrot):
        repeatable = False

    class Resumable(Model):
        def resume(self, brief, talk):
            self.texts = [talk[-1][1].upper()]

    with pytest.raises(DataError, match="cannot go on"):
        CheckedUser(Model("Yes.")).resume(BRIEF, [["Used?", "No."]])
    user = CheckedUser(Resumable())
    user.resume(BRIEF, [["Used?", "No."]])
    assert user.answer("Really?").text == "NO."
