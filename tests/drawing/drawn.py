"""Graphs to draw, and what can be read from pictures of them."""

import xml.etree.ElementTree as ET

import numpy as np

import simsched as ss
from simsched.show.drawing.style import text_width

SVG = "{http://www.w3.org/2000/svg}"


def op(name, kind="conv", **more):
    return ss.Operator(name, kind, **more)


def graph_of(*edges, alone=(), name="made"):
    names = dict.fromkeys([end for edge in edges for end in edge] + list(alone))
    return ss.OpGraph([op(n) for n in names], [ss.Edge(s, d, nbytes=1024) for s, d in edges], name=name)


def random_graph(n, n_edges, seed):
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.integers(0, n, (n_edges, 2)), axis=1)
    ends = ends[ends[:, 0] != ends[:, 1]]
    return ss.OpGraph.from_columns([f"v{i}" for i in range(n)], ends[:, 0], ends[:, 1])


def titles(text):
    return [each.text for each in ET.fromstring(text).iter(f"{SVG}title")]


def texts(text):
    return [each.text for each in ET.fromstring(text).iter(f"{SVG}text")]


def fills(text):
    """Fill by what the first line in the box says."""
    found = {}
    for group in ET.fromstring(text).iter(f"{SVG}g"):
        kinds = [child.tag.removeprefix(SVG) for child in group]
        if kinds[:3] == ["title", "rect", "text"]:
            found[group[2].text] = group[1].get("fill")
    return found


def two_devices():
    graph = graph_of("ab", "ac", "bd", "cd")
    rows = [ss.Placement("a"), ss.Placement("b", stream=1), ss.Placement("c", "gpu1"), ss.Placement("d")]
    return ss.Schedule(graph, rows, scheduler="by hand", estimate=12.0)


def labels_within_boxes(text):
    root = ET.fromstring(text)
    for group in root.iter(f"{SVG}g"):
        if len(group) > 2 and group[0].tag == f"{SVG}title" and group[1].tag == f"{SVG}rect":
            for label in group.findall(f"{SVG}text")[:2]:
                yield text_width(label.text, float(label.get("font-size"))), float(group[1].get("width"))
