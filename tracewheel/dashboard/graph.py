"""A graph as one self-contained HTML page: figures, a drawing, and tables of its nodes and edges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from markupsafe import Markup

from tracewheel.dashboard.files import page_file
from tracewheel.dashboard.view import render
from tracewheel.lineage.graph import Edge, Graph, Node, title_of

COLUMN, ROW, WIDTH, HEIGHT, MARGIN = 260, 46, 210, 34, 12
LONGEST = 33


@dataclass(frozen=True)
class Box:
    """A node in the drawing."""

    node: Node
    x: int
    y: int

    @property
    def name(self) -> str:
        return _cut(self.node.key)

    @property
    def below(self) -> str:
        return _cut(f"{self.node.kind} {self.node.label}")

    @property
    def title(self) -> str:
        return title_of(self.node)


@dataclass(frozen=True)
class Line:
    """An edge in the drawing: a curve from the right of a box to the left of another."""

    edge: Edge
    path: str


def lineage_page(graph: Graph, title: str, facts: Sequence[tuple[str, str]], notes: Iterable[str] = ()) -> str:
    """The page.

    Args:
        graph: What to draw.
        title: Its heading.
        facts: Names and values at its top.
        notes: What is not known, in sentences.
    """
    columns = _columns(graph)
    rows: dict[int, int] = {}
    boxes: dict[str, Box] = {}
    for name, column in columns.items():
        rows[column] = rows.get(column, -1) + 1
        boxes[name] = Box(graph.nodes[name], MARGIN + column * COLUMN, MARGIN + rows[column] * ROW)
    size = (max(columns.values(), default=0), max(rows.values(), default=0))
    main = render(
        "graph.html",
        title=title,
        facts=facts,
        notes=list(notes),
        graph=graph,
        boxes=list(boxes.values()),
        lines=[Line(edge, _curve(boxes[edge.source], boxes[edge.target])) for edge in graph.edges],
        width=2 * MARGIN + size[0] * COLUMN + WIDTH,
        height=2 * MARGIN + size[1] * ROW + HEIGHT,
        box=(WIDTH, HEIGHT),
    )
    return page_file(title, Markup(main), {"nodes": "Nodes", "edges": "Edges"})


def _columns(graph: Graph) -> dict[str, int]:
    """Node to its column: one more than the farthest of its sources. A graph with a circle stands in one column."""
    before: dict[str, set[str]] = {name: set() for name in graph.nodes}
    for edge in graph.edges:
        before[edge.target].add(edge.source)
    try:
        order = [*TopologicalSorter(before).static_order()]
    except CycleError:
        return dict.fromkeys(graph.nodes, 0)
    columns: dict[str, int] = {}
    for name in order:
        columns[name] = 1 + max((columns[one] for one in before[name]), default=-1)
    return columns


def _curve(source: Box, target: Box) -> str:
    x1, y1, x2, y2 = source.x + WIDTH, source.y + HEIGHT // 2, target.x, target.y + HEIGHT // 2
    middle = (x1 + x2) // 2
    return f"M{x1},{y1} C{middle},{y1} {middle},{y2} {x2},{y2}"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
