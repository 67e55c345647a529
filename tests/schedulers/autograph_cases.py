"""Rules and graphs so small that what comes of them can be worked out by hand."""

from dataclasses import dataclass

from simsched.model.graph import Edge, Operator, OpGraph
from simsched.rewriting import Row, Source


@dataclass(frozen=True)
class Pair:
    """Two operators of kind "half" that read the same become one of kind "both" whose time is given."""

    time: float
    name: str = "pair"

    def matches(self, draft):
        halves = [name for name, row in draft.rows.items() if row.operator.kind == "half"]
        for i, a in enumerate(halves):
            for b in halves[i + 1 :]:
                if draft.rows[a].reads[0].producer == draft.rows[b].reads[0].producer:
                    yield a, b

    def apply(self, draft, match):
        a, b = match
        new = Operator(f"{a}+{b}", kind="both", time=self.time, output_shape=(1, 2))
        row = Row(new, draft.rows[a].reads)
        return draft.replace(match, [row], {a: Source(new.name, (1, 0, 1)), b: Source(new.name, (1, 1, 2))})


@dataclass(frozen=True)
class Drop:
    """An operator of kind "nothing" goes."""

    name: str = "drop"

    def matches(self, draft):
        for name, row in draft.rows.items():
            if row.operator.kind == "nothing":
                yield (name,)

    def apply(self, draft, match):
        (name,) = match
        return draft.replace(match, redirect={name: Source(draft.rows[name].reads[0].producer)})


def forked(pairs=1, branch=10.0):
    """d0 (1 us), two halves side by side that read it, and d1 (1 us), which reads both; so many in a row."""
    rows, edges = [Operator("d0", time=1.0, output_shape=(1, 1))], []
    for i in range(1, pairs + 1):
        rows += [Operator(f"{x}{i}", kind="half", time=branch, output_shape=(1, 1)) for x in "bc"]
        rows.append(Operator(f"d{i}", time=1.0, output_shape=(1, 1)))
        edges += [
            Edge(f"d{i - 1}", f"b{i}"),
            Edge(f"d{i - 1}", f"c{i}"),
            Edge(f"b{i}", f"d{i}"),
            Edge(f"c{i}", f"d{i}"),
        ]
    return OpGraph(rows, edges, name="forked")
