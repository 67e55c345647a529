"""Rules and graphs so small that what comes of them can be worked out by hand."""

from dataclasses import dataclass

from small import made, operators

from simsched.model import Operator
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
    shape = {"output_shape": (1, 1)}
    rows, edges = operators("d0=1", **shape), []
    for i in range(1, pairs + 1):
        rows += operators(f"b{i}={branch} c{i}={branch}", kind="half", **shape) + operators(f"d{i}=1", **shape)
        edges += [f"d{i - 1}-b{i}", f"d{i - 1}-c{i}", f"b{i}-d{i}", f"c{i}-d{i}"]
    return made(rows, " ".join(edges))
