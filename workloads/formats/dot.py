"""Graphs in the DOT language of Graphviz, as data.

The reader is our own: the grammar has twelve rules, pydot (with which networkx reads DOT) needs pyparsing and took
tens of seconds for 2,000 nodes and 4,000 edges, and pygraphviz is compiled against an installed Graphviz.
"""

import json
import logging
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NoReturn

from simsched.base.codec import read
from simsched.base.errors import FormatError, brief_text
from simsched.base.io import parse_json, read_text, write_file
from simsched.model.graph import Edge, Operator, OpGraph
from workloads.formats.reading import build, real

Attributes = dict[str, str]

_logger = logging.getLogger(__name__)

_NUMBERS: Final = ("time", "flops", "nbytes", "weight_nbytes", "utilization", "host", "transfer")
_TEXTS: Final = ("kind", "block", "intensity", "dtype")
_STRUCTURES: Final = ("kernels", "works", "collective", "attributes", "input_shapes", "output_shape")
_KNOWN: Final = frozenset((*_NUMBERS, *_TEXTS, *_STRUCTURES))
_OF_EDGES: Final = frozenset(("nbytes", "transfer"))
_OF_NODES: Final = _KNOWN - {"transfer"}
_PICTURES: Final = frozenset(
    [
        "area",
        "arrowhead",
        "arrowsize",
        "arrowtail",
        "class",
        "color",
        "colorscheme",
        "comment",
        "constraint",
        "decorate",
        "dir",
        "distortion",
        "edgehref",
        "edgetarget",
        "edgetooltip",
        "edgeurl",
        "fillcolor",
        "fixedsize",
        "fontcolor",
        "fontname",
        "fontsize",
        "gradientangle",
        "group",
        "head_lp",
        "headclip",
        "headhref",
        "headlabel",
        "headport",
        "headtarget",
        "headtooltip",
        "headurl",
        "height",
        "href",
        "id",
        "image",
        "imagepos",
        "imagescale",
        "labelangle",
        "labeldistance",
        "labelfloat",
        "labelfontcolor",
        "labelfontname",
        "labelfontsize",
        "labelhref",
        "labelloc",
        "labeltarget",
        "labeltooltip",
        "labelurl",
        "layer",
        "len",
        "lhead",
        "lp",
        "ltail",
        "margin",
        "minlen",
        "nojustify",
        "ordering",
        "orientation",
        "penwidth",
        "peripheries",
        "pin",
        "pos",
        "rank",
        "rects",
        "regular",
        "root",
        "samehead",
        "sametail",
        "samplepoints",
        "shape",
        "shapefile",
        "showboxes",
        "sides",
        "skew",
        "sortv",
        "style",
        "tail_lp",
        "tailclip",
        "tailhref",
        "taillabel",
        "tailport",
        "tailtarget",
        "tailtooltip",
        "tailurl",
        "target",
        "tooltip",
        "url",
        "vertices",
        "weight",
        "width",
        "xlabel",
        "xlp",
        "z",
    ]
)
"""Attributes of nodes and edges in Graphviz, in small letters, but for labels, which may say anything."""
_MOST_LISTED: Final = 8
_KEYWORDS: Final = ("strict", "graph", "digraph", "subgraph", "node", "edge")
_IDS: Final = ("name", "text", "quoted")  # kinds of tokens that name something
_ENDS: Final = (*_IDS, "{", "subgraph")  # tokens that the ends of edges begin with
_MOST_NESTED: Final = 100
_MOST_MULTIPLIED: Final = 10**6

_LETTER: Final = r"A-Za-z_\x80-\U0010ffff"
_TOKEN: Final = re.compile(
    rf"""(?:[ \t\r\n\f\v]++|//[^\n]*+|/\*.*?\*/|^\#[^\n]*+)*+
    (?:(?P<name>[{_LETTER}][0-9{_LETTER}]*+)
    | (?P<text>-?(?:\.[0-9]++|[0-9]++(?:\.[0-9]*+)?)(?![.{_LETTER}]))
    | "(?P<quoted>(?:[^"\\]++|\\.)*+)"
    | (?P<mark>->|--|[{{}}\[\];,:=+<])
    | (?P<end>\Z))""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
# The most usual attribute at once, which halves the time: no comment, no escape, no keyword, nothing joined by +.
_PAIR: Final = re.compile(
    rf"""[ \t\r\n]*+(?P<key>(?!(?i:{"|".join(_KEYWORDS)})\b)[A-Za-z_]\w*+)[ \t]*+=[ \t]*+
    (?:"(?P<quoted>[^"\\]*+)"|(?P<value>-?[0-9]++(?:\.[0-9]++)?))[ \t\r\n]*+(?:[,;]|(?=\]))""",
    re.VERBOSE | re.ASCII,
)
_ESCAPE: Final = re.compile(r'\\(\r?\n|["\\])')
_ANGLE: Final = re.compile("[<>]")


def read_dot(path: str | os.PathLike[str]) -> OpGraph:
    """Read a graph from a DOT file; see `parse_dot`.

    Raises
    ------
    FormatError, GraphError
        See `parse_dot`; also if no operator has a cost (`time`, `flops`, `nbytes`, `works`), unless the graph says
        ``costs=none``: schedulers would rank operators that all take no time.
    """
    graph, reader = _parse(read_text(path), str(path))
    _require_costs(str(path), reader, graph)
    return graph


def write_dot(graph: OpGraph, path: str | os.PathLike[str]) -> None:
    """Write a graph to a DOT file, whole or not at all; see `to_dot`."""
    write_file(path, to_dot(graph))


def parse_dot(text: str, source: str = "DOT") -> OpGraph:
    """Return the graph that a text in the DOT language describes.

    Parameters
    ----------
    text
        One ``digraph``, strict or not.
    source
        How errors name it.

    Raises
    ------
    FormatError
        If it is not DOT, an undirected graph, or an attribute has a value that cannot be; the
        message names the line or the operator.
    GraphError
        If the graph is empty or has a cycle.

    Notes
    -----
    The whole language [1]_ is read: edge chains, subgraphs as ends of edges, defaults of nodes and
    edges and their scopes, ports (left out), HTML strings (kept as text), comments, ``+`` between
    strings. In ``strict`` graphs the last of several edges between the same ends counts.

    Of nodes the attributes `time`, `flops`, `nbytes`, `weight_nbytes`, `utilization`, `host` (numbers),
    `kind`, `block`, `intensity`, `dtype` (texts), `kernels`, `works`, `attributes`, `input_shapes`,
    `output_shape` (JSON in a string) are read, of edges `nbytes` and `transfer`: in us, bytes and
    FLOP, with the meaning that they have in `Operator` and `Edge`. An empty text is no value. All
    other attributes are ignored; a warning lists those that Graphviz does not know, which may be costs under
    other names.

    Operators keep the order in which their nodes first appear, edges the order in which they
    are written. Where Graphviz keeps both characters of an escaped backslash we read one backslash,
    so that every name can be written. Subgraphs may be nested 100 deep, and edges between subgraphs
    may multiply to 10^6 more. O(text + edges).

    References
    ----------
    .. [1] The DOT language, https://graphviz.org/doc/info/lang.html

    >>> graph = parse_dot('digraph net { node [time=3]; a -> {b c} -> d [nbytes=8]; d [time=1.5, color=red] }')
    >>> graph.names, graph.time.tolist(), len(graph.edges)
    (('a', 'b', 'c', 'd'), [3.0, 3.0, 3.0, 1.5], 4)
    """
    return _parse(text, source)[0]


def _parse(text: str, source: str) -> tuple[OpGraph, "_Reader"]:
    """Return the graph that a text describes, and the reader of it."""
    reader = _Reader(text, source)
    reader.run()
    ignored = [key for key in reader.ignored if key != "label"]
    if ignored:
        _logger.warning(
            "%s: attributes that are ignored: %s; costs are read from time (us), flops, nbytes",
            source,
            ", ".join(map(brief_text, ignored[:_MOST_LISTED])),
        )
    operators = [
        read(Operator, {"name": name, **_values(source, name, row, _OF_NODES)}, f"{source}: {brief_text(name)}")
        for name, row in reader.nodes.items()
    ]
    edges = [
        read(Edge, {"src": src, "dst": dst, **_values(source, f"{src} -> {dst}", row, _OF_EDGES)}, source)
        for src, dst, row in reader.edges
    ]
    return build(source, OpGraph, operators, edges, reader.name), reader


def _has_costs(graph: OpGraph) -> bool:
    return any(op.time is not None or op.flops or op.nbytes or op.works for op in graph.operators)


def _require_costs(source: str, reader: "_Reader", graph: OpGraph) -> None:
    """Refuse a graph without any cost."""
    if _has_costs(graph) or reader.attributes.get("costs") == "none":
        return
    listed = ", ".join(map(brief_text, list(reader.ignored)[:_MOST_LISTED]))
    raise FormatError(
        f"{source}: no operator of {brief_text(graph.name)} has a cost"
        + (f" (attributes that are ignored: {listed})" if listed else "")
        + "; give nodes time (us), or flops and nbytes, or say graph [costs=none]"
    )


def to_dot(graph: OpGraph) -> str:
    """Return a graph as text in the DOT language that `parse_dot` reads back as an equal graph.

    Every field of an operator and an edge is written, as attributes in quotes; a field at its default
    is left out. O(V + E).

    >>> from simsched.model.graph import Edge, Kernel, Operator
    >>> print(to_dot(OpGraph([Operator("a", time=3.0), Operator("b")], [Edge("a", "b", nbytes=8)])), end="")
    digraph "graph" {
      "a" [time="3.0"];
      "b";
      "a" -> "b" [nbytes="8.0"];
    }
    """
    document = graph.to_dict()
    lines = [f"digraph {_quote(graph.name)} {{"]
    if not _has_costs(graph):
        lines.append("  graph [costs=none];")
    for row in document["operators"]:
        lines.append(f"  {_quote(row.pop('name'))}{_attribute_list(row)};")
    for row in document["edges"]:
        lines.append(f"  {_quote(row.pop('src'))} -> {_quote(row.pop('dst'))}{_attribute_list(row)};")
    return "\n".join([*lines, "}", ""])


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _attribute_list(row: dict[str, Any]) -> str:
    """Return the attributes that are not at their defaults, with a space before them."""
    written = [
        f"{key}={_quote(value if isinstance(value, str) else json.dumps(value, allow_nan=False))}"
        for key, value in row.items()
        if (key, value) not in (("kind", "op"), ("nbytes", 0.0))
    ]
    if written:
        return f" [{', '.join(written)}]"
    return ""


def _values(source: str, owner: str, row: Attributes, keys: frozenset[str]) -> dict[str, Any]:
    """Return the attributes of a node or an edge as JSON values."""
    values: dict[str, Any] = {}
    for key, text in row.items():
        if key not in keys or not text:
            continue
        where = f"{source}: {brief_text(owner)}, attribute {key!r}"
        if key in _STRUCTURES:
            values[key] = parse_json(text, where)
        elif key in _TEXTS:
            values[key] = text
        else:
            values[key] = number = real(text)
            if number is None:
                raise FormatError(f"{where} must be a number, not {brief_text(text)}")
    return values


@dataclass(slots=True)
class _Scope:
    """A pair of braces: its defaults, the nodes in it, and how deep it lies."""

    node: Attributes = field(default_factory=dict)
    edge: Attributes = field(default_factory=dict)
    members: dict[str, None] = field(default_factory=dict)
    depth: int = 0


class _Reader:
    """The grammar, one token ahead."""

    def __init__(self, text: str, source: str) -> None:
        self.name = "graph"
        self.nodes: dict[str, Attributes] = {}
        self.edges: list[tuple[str, str, Attributes]] = []
        self.attributes: Attributes = {}  # of the graph
        self.ignored: dict[
            str, None
        ] = {}  # attributes of nodes and edges that neither we nor Graphviz know, and labels
        self._n_multiplied = 0
        self._text = text
        self._source = source
        self._strict = False
        self._first: dict[tuple[str, str], Attributes] = {}  # edges of a strict graph
        self._named: dict[str, dict[str, None]] = {}  # members of subgraphs that have a name
        self._end = 0  # of the token that is being looked at
        self._next()

    def _next(self) -> None:
        """Look at the next token: a "name" or a keyword, a "text", a "quoted" one, a mark, or the "end"."""
        match = _TOKEN.match(self._text, self._end)
        if match is None:
            self._at = self._end
            self._fail("cannot be read from here on (text with other characters stands in quotes)")
        kind = match.lastgroup or "end"
        self._value = match[kind]
        self._at = match.start(kind)
        self._end = match.end()
        if kind == "mark":
            self._kind = self._value
        else:
            self._kind = kind
        if kind == "name" and self._value.lower() in _KEYWORDS:
            self._kind = self._value.lower()
        elif kind == "quoted" and "\\" in self._value:
            self._value = _ESCAPE.sub(lambda found: "" if "\n" in found[1] else found[1], self._value)
        elif self._kind == "<":
            self._kind, self._end = "text", self._end_of_html()
            self._value = self._text[self._at : self._end]

    def _end_of_html(self) -> int:
        depth = 0
        for bracket in _ANGLE.finditer(self._text, self._at):
            depth += 1 if bracket[0] == "<" else -1
            if not depth:
                return bracket.end()
        return self._fail("a '<' that no '>' closes")

    def _fail(self, what: str) -> NoReturn:
        line = self._text.count("\n", 0, self._at) + 1
        raise FormatError(f"{self._source}: not DOT at line {line}: {what}")

    def _expect(self, kind: str) -> None:
        if self._kind != kind:
            self._fail(f"expected {kind!r}, not {self._identifier()}")
        self._next()

    def _identifier(self) -> str:
        if self._kind == "end":
            return "the end"
        return brief_text(self._value)

    def _id(self, what: str) -> str:
        """Take an identifier, and strings joined to it by ``+``."""
        if self._kind not in _IDS:
            self._fail(f"expected {what}, not {self._identifier()} (a keyword as a name stands in quotes)")
        parts = [self._value]
        joins = self._kind == "quoted"
        self._next()
        while joins and self._kind == "+":
            self._next()
            if self._kind != "quoted":
                self._fail(f"expected a string in quotes after '+', not {self._identifier()}")
            parts.append(self._value)
            self._next()
        return "".join(parts)

    def run(self) -> None:
        """Read the whole text."""
        if self._kind == "strict":
            self._strict = True
            self._next()
        if self._kind == "graph":
            self._fail("an undirected graph; operators need to know which reads from which: write 'digraph' and '->'")
        self._expect("digraph")
        if self._kind != "{":
            self.name = self._id("a name or '{'")
        self._expect("{")
        self._body(_Scope())
        if self._kind != "end":
            self._fail(f"{self._identifier()} behind the graph; a file holds one graph")

    def _body(self, scope: _Scope) -> None:
        """Read statements up to the brace that closes them."""
        while self._kind != "}":
            if self._kind in ("graph", "node", "edge"):
                defaults = {"graph": self.attributes, "node": scope.node, "edge": scope.edge}[self._kind]
                self._next()
                if self._kind != "[":
                    self._fail(f"expected '[', not {self._identifier()}")
                defaults.update(self._attributes(of_graph=defaults is self.attributes))
            elif self._kind in _ENDS:
                self._chain(scope)
            else:
                self._expect(";")
        self._next()

    def _chain(self, scope: _Scope) -> None:
        """Read a node or a subgraph, and all that arrows lead to from there; or an attribute of the graph."""
        if self._kind in _IDS:
            name = self._id("a node")
        else:
            name = None
        if name is not None and self._kind == "=":
            self._next()
            self.attributes[name] = self._id("a value")
            return
        ends = []
        if name is None:
            last = self._subgraph(scope)
        else:
            last = self._node(scope, name)
        while self._kind == "->":
            ends.append(tuple(last))  # a subgraph of that name may get more members
            self._next()
            if self._kind not in _ENDS:
                self._fail(f"expected a node or a subgraph after '->', not {self._identifier()}")
            if self._kind in _IDS:
                last = self._node(scope, self._id("a node"))
            else:
                last = self._subgraph(scope)
        if self._kind == "--":
            self._fail("'--' is an edge without direction; write '->'")
        if ends:
            row = scope.edge | self._attributes()
            for sources, targets in pairwise([*ends, tuple(last)]):
                self._connect(sources, targets, row)
        elif name is not None:
            self.nodes[name].update(self._attributes())

    def _node(self, scope: _Scope, name: str) -> Iterable[str]:
        """Add a node that was named, and read where on it the edge ends."""
        for _ in range(2):  # a port and a compass point
            if self._kind == ":":
                self._next()
                self._id("a port")
        if name not in self.nodes:
            self.nodes[name] = dict(scope.node)
        scope.members[name] = None
        return (name,)

    def _subgraph(self, scope: _Scope) -> Iterable[str]:
        """Read a subgraph; return its members, and those that it has had under its name."""
        inner = _Scope(dict(scope.node), dict(scope.edge), depth=scope.depth + 1)
        members = dict[str, None]()
        if self._kind == "subgraph":
            self._next()
            if self._kind != "{":
                members = self._named.setdefault(self._id("a name or '{'"), members)
        self._expect("{")
        if inner.depth > _MOST_NESTED:
            self._fail(f"subgraphs nested more than {_MOST_NESTED} deep")
        self._body(inner)
        members.update(inner.members)
        scope.members.update(inner.members)
        return members

    def _connect(self, sources: tuple[str, ...], targets: tuple[str, ...], row: Attributes) -> None:
        self._n_multiplied += len(sources) * len(targets) - 1  # a short text may describe very many
        if self._n_multiplied > _MOST_MULTIPLIED:
            self._fail(f"edges between subgraphs multiply to more than {_MOST_MULTIPLIED}")
        for src in sources:
            for dst in targets:
                if (src, dst) in self._first:
                    self._first[src, dst].update(row)
                elif self._strict:
                    self._first[src, dst] = own = dict(row)
                    self.edges.append((src, dst, own))
                else:
                    self.edges.append((src, dst, row))

    def _keeps(self, key: str, of_graph: bool) -> bool:
        """Say whether an attribute is kept; note that it is ignored if it may say something."""
        if not of_graph and key not in _KNOWN and key.lower() not in _PICTURES:
            self.ignored[key] = None
        return of_graph or key in _KNOWN

    def _attributes(self, *, of_graph: bool = False) -> Attributes:
        """Read the next attribute lists, if any, and return their known attributes."""
        attributes: Attributes = {}
        while self._kind == "[":
            while (pair := _PAIR.match(self._text, self._end)) is not None:
                if self._keeps(pair["key"], of_graph):
                    if pair["value"] is None:
                        attributes[pair["key"]] = pair["quoted"]
                    else:
                        attributes[pair["key"]] = pair["value"]
                self._end = pair.end()
            self._next()
            while self._kind != "]":
                key = self._id("an attribute or ']'")
                value = "true"
                if self._kind == "=":
                    self._next()
                    value = self._id("a value")
                if self._keeps(key, of_graph):
                    attributes[key] = value
                if self._kind in (",", ";"):
                    self._next()
            self._next()
        return attributes
