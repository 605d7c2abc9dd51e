"""The graph of a lineage: nodes of a kind, and edges in the direction in which data went, each with a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Kind = Literal[
    "log file",
    "log line",
    "trace",
    "task",
    "dataset",
    "split side",
    "entry",
    "adapter",
    "file",
    "run",
    "report",
    "model version",
]
SCHEMA = 1
# Of the kinds in a Mermaid flowchart.
SHAPES: dict[Kind, tuple[str, str]] = {
    "log file": ("[(", ")]"),
    "log line": (">", "]"),
    "trace": ("([", "])"),
    "task": ("{{", "}}"),
    "dataset": ("[(", ")]"),
    "split side": ("[/", "/]"),
    "entry": ("[", "]"),
    "adapter": ("[[", "]]"),
    "file": ("[(", ")]"),
    "run": ("((", "))"),
    "report": ("[", "]"),
    "model version": ("[[", "]]"),
}
LONGEST = 120
PLAIN = " .,:/_-+=()@"


@dataclass(frozen=True)
class Node:
    """One thing.

    Attributes:
        kind: What it is.
        key: Names it among its kind.
        label: A few words for people.
        facts: JSON types.
    """

    kind: Kind
    key: str
    label: str = ""
    facts: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def id(self) -> str:
        return f"{self.kind}:{self.key}"


@dataclass(frozen=True)
class Edge:
    """Data of `source` went into `target`; both are ids of nodes."""

    source: str
    target: str
    reason: str


class Graph:
    """Nodes and edges, each once, in the order in which they were added."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self._edges: dict[Edge, None] = {}

    @property
    def edges(self) -> list[Edge]:
        return list(self._edges)

    def add(self, node: Node) -> Node:
        """Add a node, unless one of its kind and key is there; returns the one that is there."""
        return self.nodes.setdefault(node.id, node)

    def link(self, source: Node, target: Node, reason: str) -> None:
        """Add an edge, and its nodes."""
        self._edges[Edge(self.add(source).id, self.add(target).id, reason)] = None

    def of(self, kind: Kind) -> Iterator[Node]:
        """The nodes of a kind."""
        return (node for node in self.nodes.values() if node.kind == kind)

    def counts(self) -> dict[str, int]:
        """The number of nodes of each kind."""
        return dict(Counter(node.kind for node in self.nodes.values()))

    def to_record(self) -> dict[str, Any]:
        """JSON types."""
        return {
            "schema": SCHEMA,
            "nodes": [{"id": node.id, **asdict(node)} for node in self.nodes.values()],
            "edges": [asdict(edge) for edge in self._edges],
        }


def mermaid(graph: Graph) -> str:
    """The graph as text for Mermaid. Labels are quoted and escaped: none of them is read as syntax or HTML."""
    names = {node.id: f"n{number}" for number, node in enumerate(graph.nodes.values())}
    lines = ["flowchart LR"]
    for node in graph.nodes.values():
        opening, closing = SHAPES[node.kind]
        lines.append(f'  {names[node.id]}{opening}"{_escaped(title_of(node))}"{closing}')
    lines += [f'  {names[edge.source]} -- "{_escaped(edge.reason)}" --> {names[edge.target]}' for edge in graph.edges]
    return "\n".join(lines) + "\n"


def title_of(node: Node) -> str:
    """A node in one line."""
    return f"{node.kind}: {node.key}" + (f" ({node.label})" if node.label else "")


def _escaped(text: str) -> str:
    cut = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return "".join(letter if letter.isalnum() or letter in PLAIN else f"#{ord(letter)};" for letter in cut)
