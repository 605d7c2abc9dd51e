"""A graph as a Mermaid flowchart."""

from __future__ import annotations

from tracewheel.lineage.graph import Graph, Kind, Node

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
