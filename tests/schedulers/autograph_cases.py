"""Rules and graphs so small that what comes of them can be worked out by hand."""

from itertools import combinations

from small import made, operators

from simsched.model import Operator
from simsched.rewriting import DraftRow, Rule, Source


def pair(time, tell=lambda _: None):
    """Two operators of kind "half" that read the same become one of kind "both" whose time is given.

    It tells when it looks for them and when it makes one.
    """

    def find(draft):
        tell("find")
        halves = [(draft.rows[name].reads[0].producer, name) for name in draft.of_kind("half")]
        return ((a, b) for (x, a), (y, b) in combinations(halves, 2) if x == y)

    def make(draft, match):
        tell("make")
        a, b = match
        new = Operator(f"{a}+{b}", kind="both", time=time, output_shape=(1, 2))
        row = DraftRow(new, draft.rows[a].reads)
        return draft.replace(match, [row], {a: Source(new.name, (1, 0, 1)), b: Source(new.name, (1, 1, 2))})

    return Rule("pair", find, make)


def drop(where=lambda _: True):
    """An operator of kind "nothing" goes, in drafts `where` it may."""

    def make(draft, match):
        (name,) = match
        return draft.replace(match, redirect={name: Source(draft.rows[name].reads[0].producer)})

    return Rule("drop", lambda draft: ((name,) for name in draft.of_kind("nothing") if where(draft)), make)


def forked(pairs=1, branch=10.0):
    """d0 (1 us), two halves side by side that read it, and d1 (1 us), which reads both; so many in a row."""
    shape = {"output_shape": (1, 1)}
    rows, edges = operators("d0=1", **shape), []
    for i in range(1, pairs + 1):
        rows += operators(f"b{i}={branch} c{i}={branch}", kind="half", **shape) + operators(f"d{i}=1", **shape)
        edges += [f"d{i - 1}-b{i}", f"d{i - 1}-c{i}", f"b{i}-d{i}", f"c{i}-d{i}"]
    return made(rows, " ".join(edges))
