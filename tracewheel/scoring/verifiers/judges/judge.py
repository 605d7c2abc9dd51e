"""The verifier `judge`: models behind endpoints mark an episode by criteria."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tracewheel.core.types import Task, content_hash
from tracewheel.scoring.verifiers.episode import Episode, Verdict
from tracewheel.scoring.verifiers.judges.asking import Asker, JudgeFailure, ask_until, asker_of
from tracewheel.scoring.verifiers.judges.attacks import Suspected, screened
from tracewheel.scoring.verifiers.judges.criteria import JudgeArgs, JudgeModel
from tracewheel.scoring.verifiers.judges.ensemble import Joined, agreement_weight, join_marks
from tracewheel.scoring.verifiers.judges.marks import Mark, marks_schema, read_marks
from tracewheel.scoring.verifiers.judges.prompt import judge_messages

FLAGGED, DISAGREEMENT, UNDETERMINED = "flagged", "disagreement", "undetermined"
SEEDS = 1000  # between the votes of one model, so that the tries of one are no tries of another


class JudgeVerifier:
    """Marks by an ensemble of models, joined by majority. Needs an endpoint that speaks OpenAI's chat protocol.

    >>> from tracewheel.scoring.verifiers.judges.attacks import is_master_key
    >>> is_master_key("Thought process:"), is_master_key("The kettle is refunded.")
    (True, False)

    Example:
        {kind: judge, args: {models: [{endpoint: "http://localhost:8000/v1", model: m}], criteria: [{name: kind, ask: "..."}]}}

    The parts are the criteria's joint marks; `undetermined`, the share of criteria that could not be determined, which count as
    0; the ensemble's `disagreement`; and `flagged`, 1 for an episode in which a text may be written for the judge: it is judged
    without that text. The same episode gets the same verdict for as long as the journal is kept.

    Raises:
        JudgeFailure: a member gives no verdict, the budget is reached, or no criterion could be determined.
        Suspected: without the suspected text nothing is left, or a criterion cannot be determined: a person decides.
    """

    kind = "judge"
    reaches = True
    Args = JudgeArgs

    def __init__(self, args: JudgeArgs, asker: Asker | None = None) -> None:
        self._args = args
        self._asker = asker or asker_of(args)

    @property
    def concurrency(self) -> int:
        """How many episodes may be judged at once."""
        return min(model.concurrency for model in self._args.models)

    def verify_episode(self, task: Task, episode: Episode) -> Verdict:
        screen = screened(episode)
        members = [(model, number) for model in self._args.models for number in range(model.votes)]
        with ThreadPoolExecutor(len(members)) as pool:
            votes = list(pool.map(lambda member: self._vote(member[0], member[1], task, screen.episode), members))
        joined = join_marks(self._args.criteria, votes)
        explanation = _explained(joined, [model.model for model, _ in members], votes)
        missing = sum(value is None for value in joined.marks.values()) / len(joined.marks)
        if screen.why and missing:
            raise Suspected(f"cannot be determined without what may be meant for the judge ({screen.why}): a person decides")
        if joined.total is None:
            raise JudgeFailure(f"cannot be determined: {explanation}")
        parts = {name: value or 0.0 for name, value in joined.marks.items()}
        parts |= {UNDETERMINED: missing, DISAGREEMENT: joined.disagreement, FLAGGED: float(bool(screen.why))}
        explanation = f"flagged: {screen.why}; judged without it\n{explanation}" if screen.why else explanation
        return Verdict(joined.total, parts, explanation=explanation, weight=agreement_weight(joined.disagreement))

    def _vote(self, model: JudgeModel, number: int, task: Task, episode: Episode) -> dict[str, Mark]:
        criteria = self._args.criteria
        messages = judge_messages(
            criteria, task, episode, shows=self._args.shows, longest=self._args.longest, advice=model.advice
        )
        seed = int(content_hash(messages, 7), 16) + SEEDS * number
        schema = marks_schema(criteria)
        return ask_until(self._asker, model, messages, schema, seed, self._args.again, lambda text: read_marks(text, criteria))


def _explained(joined: Joined, names: Sequence[str], votes: Sequence[dict[str, Mark]]) -> str:
    """Each criterion's joint mark, and each member's with its reason."""
    lines = []
    for name, value in joined.marks.items():
        said = "; ".join(
            f"{who} {_shown(vote[name].value)} ({vote[name].reason})" for who, vote in zip(names, votes, strict=True)
        )
        lines.append(f"{name} {_shown(value)}: {said}")
    return "\n".join(lines)


def _shown(value: float | None) -> str:
    return "cannot be determined" if value is None else f"{value:g}"
