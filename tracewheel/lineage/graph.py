"""The graph of a lineage: nodes of a kind, and edges in the direction in which data went, each with a reason."""

from __future__ import annotations

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

    def add(self, node: Node) -> Node:
        """Add a node, unless one of its kind and key is there; returns the one that is there."""
        return self.nodes.setdefault(node.id, node)

    def link(self, source: Node, target: Node, reason: str) -> None:
        """Add an edge, and its nodes."""
        self._edges[Edge(self.add(source).id, self.add(target).id, reason)] = None

    def to_record(self) -> dict[str, Any]:
        """JSON types."""
        return {
            "schema": SCHEMA,
            "nodes": [{"id": node.id, **asdict(node)} for node in self.nodes.values()],
            "edges": [asdict(edge) for edge in self._edges],
        }
