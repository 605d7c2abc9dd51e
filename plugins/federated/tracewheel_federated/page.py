"""`federation.html`: the federation's rounds, its clients, what each gained and who looked odd, as a page in a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tracewheel import Section, Table, write_page

PAGE = "federation.html"


def write_federation_page(record: Mapping[str, Any], out: Path, held: Mapping[str, str]) -> Path:
    """Write the page of a `lineage.json`'s content.

    Args:
        record: As `write_lineage` gathers it.
        out: The federation's folder.
        held: The clients in quarantine, with why.
    """
    return write_page(f"Federation {record['federation']}", list(_sections(record, held)), out / PAGE)


def _sections(record: Mapping[str, Any], held: Mapping[str, str]) -> Iterator[Section]:
    rounds: Sequence[Mapping[str, Any]] = record["rounds"]
    clients = sorted({name for each in rounds for name in (*each["scores"], *each["refused"])})
    judged = [each for each in record["verdicts"] if each["work"] == "judge"]
    yield (
        _verdict(judged[-1]["verdict"])
        if judged
        else Section("Verdict", ["The clients have not judged the final adapter yet."])
    )
    yield Section("Validation by round", ["Success on each client's validation tasks."], [_validation(record["verdicts"])])
    yield Section("Rounds", [], [Table(HEADINGS, [_round(each) for each in rounds])])
    yield Section(
        "Anomalies",
        ["Norm of each update, in medians of the round, and its cosine with the others' mean. A cross: it was left out."],
        [
            Table(
                ["client", *(f"round {each['round']}" for each in rounds)], [[name, *_odd(name, rounds)] for name in clients]
            ),
            Table(["client", "round", "why"], [*_left_out(rounds)], "Left out or refused"),
            Table(["client", "why"], [[name, why] for name, why in sorted(held.items())], "In quarantine"),
        ],
    )


HEADINGS = [
    "round",
    "clients",
    "left out",
    "refused",
    "examples",
    "MB received",
    "off the true mean",
    "global adapter after it",
]


def _round(each: Mapping[str, Any]) -> list[str]:
    received = sum(each["bytes"].values()) / 1e6
    counts = [len(each["clients"]), len(each["left_out"]), len(each["refused"]), sum(each["examples"].values())]
    return [str(each["round"]), *map(str, counts), f"{received:.1f}", f"{each['error']:.1%}", each["next"][:12]]


def _odd(name: str, rounds: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for each in rounds:
        if score := each["scores"].get(name):
            cosine = "–" if score["cosine"] is None else f"{score['cosine']:.2f}"
            yield f"{'✗ ' if name in each['left_out'] else ''}{score['ratio']:.1f}, {cosine}"
        else:
            yield "refused" if name in each["refused"] else "–"


def _left_out(rounds: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    for each in rounds:
        for name, reasons in each["left_out"].items():
            yield [name, str(each["round"]), "; ".join(reasons)]
        for name, reason in each["refused"].items():
            yield [name, str(each["round"]), reason]


def _validation(verdicts: Sequence[Mapping[str, Any]]) -> Table:
    steps = [each for each in verdicts if each["work"] == "validate"]
    names = sorted({name for each in steps for name in each["verdict"]["clients"]})
    rows = [[name, *(_rate(each["verdict"]["clients"].get(name)) for each in steps)] for name in names]
    return Table(["client", *(f"round {each['round']}" for each in steps)], rows)


def _rate(found: Mapping[str, Any] | None) -> str:
    return f"{found['after']:.1%}" if found else "–"


def _verdict(verdict: Mapping[str, Any]) -> Section:
    said = {"harmed": "harmed", "undecided": "cannot tell", "silent": "sent no counts"}
    others = [f"{label}: {', '.join(verdict[key])}." for key, label in said.items() if verdict[key]]
    sentence = "Promoted." if verdict["promoted"] else "Not promoted."
    rule = f"A client may lose less than {verdict['margin']:.1%} of success on its own held-out tasks (95% interval)."
    rows = [
        [
            name,
            f"{found['before']:.1%}",
            f"{found['after']:.1%}",
            f"{100 * found['gain']:+.1f} ({100 * found['interval'][0]:+.1f} to {100 * found['interval'][1]:+.1f})",
            str(found["tasks"]),
            found["verdict"],
        ]
        for name, found in verdict["clients"].items()
    ]
    headings = ["client", "its champion", "global adapter", "gain, points", "tasks", "verdict"]
    return Section("Verdict", [" ".join([sentence, *others]), rule], [Table(headings, rows)])
