"""Pictures as text in the language DOT, for Graphviz."""

import os
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from simsched.base.io import write_file
from simsched.model.graph import OpGraph
from simsched.model.schedule import Schedule
from simsched.show.drawing.picture import Picture, describe
from simsched.show.drawing.style import ink, mixed, printable


def to_dot(shown: OpGraph | Schedule, path: str | os.PathLike[str] | None = None) -> str:
    r"""Write a graph, or a schedule over its graph, as DOT: colours, tooltips, and clusters for stages or blocks.

    Parameters
    ----------
    shown
        What to draw; see `simsched.show.drawing.to_svg`. Stages are clusters where no edge leads to a stage of lower
        number, otherwise they stand in the labels and blocks are clusters.
    path
        Where to write it, whole or not at all.

    Returns
    -------
    str
        The text, for example for ``dot -Tsvg``. Operator i is node ``n<i>``.

    Raises
    ------
    GraphError
        If the graph has more than 10,000 operators.
    FileError
        If the file cannot be written.

    >>> from simsched.model.graph import Edge, Operator
    >>> graph = OpGraph([Operator("a"), Operator("b")], [Edge("a", "b", nbytes=8)])
    >>> print(to_dot(graph).splitlines()[-2])
      n0 -> n1 [tooltip="a → b\n8 B"];
    """
    text = "\n".join(_document(describe(shown))) + "\n"
    if path is not None:
        write_file(path, text)
    return text


def _document(picture: Picture) -> Iterator[str]:
    yield f"digraph {_quoted(picture.title)} {{"
    label = _quoted(f"{picture.title}\n{picture.subtitle}")
    yield f'  graph [label={label}, labelloc=t, fontname="Helvetica", bgcolor="#ffffff"];'
    yield '  node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=11, height=0.5];'
    yield '  edge [color="#6b7280", arrowsize=0.6];'
    clusters = _clusters(picture)
    within = [i for ops in clusters.values() for i in ops]
    outside = sorted({*range(len(picture.boxes))}.difference(within))
    for i in outside:
        yield f"  {_node(picture, i)}"
    for k, (name, ops) in enumerate(clusters.items()):
        yield f"  subgraph cluster_{k} {{"
        yield f"    label={_quoted(printable(name))}; labeljust=l;"
        yield '    style="rounded,filled"; color="#c9cdd4"; fillcolor="#f5f6f8";'
        for i in ops:
            yield f"    {_node(picture, i)}"
        yield "  }"
    for line in picture.lines:
        dashed = ', style=dashed, color="#111827"' if line.crosses else ""
        yield f"  n{line.src} -> n{line.dst} [tooltip={_quoted(line.tooltip)}{dashed}];"
    yield "}"


def _clusters(picture: Picture) -> Mapping[str, Sequence[int]]:
    if picture.stage is None:
        return picture.blocks
    found: dict[str, list[int]] = {}
    for i in np.argsort(picture.stage, kind="stable").tolist():
        found.setdefault(f"stage {picture.boxes[i].badge}", []).append(i)
    return found


def _node(picture: Picture, i: int) -> str:
    box = picture.boxes[i]
    label = f"{box.name}\n{box.detail}"
    if picture.staged and picture.stage is None:
        label += f" \u00b7 stage {box.badge}"
    look = f'fillcolor="{box.fill}", color="{mixed(box.fill, "#000000", 0.35)}", fontcolor="{ink(box.fill)}"'
    return f"n{i} [label={_quoted(label)}, {look}, tooltip={_quoted(box.tooltip)}];"


def _quoted(text: str) -> str:
    """Return a text as a string of DOT, in which names of entities and escapes stand for themselves."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
    return '"' + plain.replace("\n", "\\n") + '"'
