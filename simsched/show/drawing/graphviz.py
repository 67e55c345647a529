"""Layouts by the program `dot` of Graphviz, where it is installed."""

import shutil
import subprocess

import numpy as np

from simsched.base.errors import GraphError, MissingDependencyError
from simsched.model.graph.columns import Floats, Ints

_INCH = 72.0
_SECONDS = 120  # after which a layout is given up


def find_dot() -> str | None:
    """Return the path of the program, or None."""
    return shutil.which("dot")


def dot_layout(
    name: str, pairs: Ints, width: Floats, height: Floats
) -> tuple[Floats, Floats, tuple[Floats, ...], tuple[float, float]]:
    """Return x and y of boxes, the curves of edges, and the size of the whole, in pixels, y growing downward.

    Parameters
    ----------
    name
        How errors call the graph.
    pairs
        Ends of the edges, shape (n_edges, 2).
    width, height
        Sizes of the boxes, shape (n_ops,).

    Raises
    ------
    MissingDependencyError
        If there is no such program.
    GraphError
        If it fails, or takes longer than two minutes.
    """
    program = find_dot()
    if program is None:
        raise MissingDependencyError(
            "engine 'graphviz' needs the program dot: install Graphviz, for example with `apt install graphviz`, "
            "or use engine 'own'"
        )
    lines = [
        "digraph {",
        'graph [ranksep=0.6, nodesep=0.25]; node [shape=box, fixedsize=true, label=""]; edge [dir=none];',
    ]
    lines += [
        f"n{i} [width={w / _INCH:.6f}, height={h / _INCH:.6f}];"
        for i, (w, h) in enumerate(zip(width.tolist(), height.tolist(), strict=True))
    ]
    lines += [f"n{u} -> n{v} [id={e}];" for e, (u, v) in enumerate(pairs.tolist())]
    try:
        done = subprocess.run(
            [program, "-Tplain"], input="\n".join([*lines, "}"]), capture_output=True, text=True, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GraphError(f"graph {name!r}: dot cannot lay it out ({error}); use engine 'own'") from error
    if done.returncode:
        raise GraphError(f"graph {name!r}: dot cannot lay it out ({done.stderr.strip()[:200]}); use engine 'own'")
    try:
        return _read_plain(done.stdout, len(width), pairs)
    except (ValueError, LookupError) as error:
        raise GraphError(f"graph {name!r}: dot answered what cannot be read ({error}); use engine 'own'") from error


def _read_plain(text: str, n: int, pairs: Ints) -> tuple[Floats, Floats, tuple[Floats, ...], tuple[float, float]]:
    """Read Graphviz's plain format: in inches, y growing upward."""
    place = np.full((n, 2), np.nan)
    found: dict[tuple[int, int], Floats] = {}
    size = (0.0, 0.0)
    for line in text.splitlines():
        what, *fields = line.split()
        if what == "graph":
            size = float(fields[1]) * _INCH, float(fields[2]) * _INCH
        elif what == "node":
            place[int(fields[0][1:])] = [float(fields[1]), float(fields[2])]
        elif what == "edge":
            points = np.array(fields[3 : 3 + 2 * int(fields[2])], np.float64).reshape(-1, 2)
            found[int(fields[0][1:]), int(fields[1][1:])] = points
    if np.isnan(place).any() or len(found) != len(pairs):
        raise ValueError("operators or edges are missing")
    turned = np.array([_INCH, -_INCH]), np.array([0.0, size[1]])
    place = place * turned[0] + turned[1]
    routes = tuple(found[u, v] * turned[0] + turned[1] for u, v in pairs.tolist())
    return place[:, 0], place[:, 1], routes, size
