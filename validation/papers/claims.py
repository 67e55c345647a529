"""Claims of papers: rows of one table a paper, and when our values agree with the published ones.

A table is a TOML file beside this one, named after its paper; a row has a unique key and the fields of `Claim`. The
table ``[defaults]`` has the fields that rows leave out. Published values are numbers or quotients of two, as in
``one: 4.62; other: 6.51/4.62``; a value alone has no name, and ``as KEY`` copies the values of another row. Our values
come from the function that the paper's module has under the row's key in its mapping ``MEASURES``. Rules were fixed
before anything was run.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import permutations
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, Final

import simsched as ss
from simsched.base.codec import Document
from simsched.base.errors import FormatError
from validation.evidence import table

PAPERS: Final[Mapping[str, str]] = {
    "ios": "IOS",
    "lios": "LIOS",
    "hios": "HIOS",
    "opara": "Opara",
    "nimble": "Nimble",
    "autograph": "AutoGraph",
}
"""Titles of the papers by the names of their tables and modules."""

Values = Mapping[str, float]
"""Compared values, by name: one number as ``{"": x}``, or a number per network, scheduler or point."""


@dataclass(frozen=True, slots=True)
class Run:
    """How claims are to be measured.

    Parameters
    ----------
    quick
        Fewer instances and samples: says whether a claim can be run at all, not how it comes out.
    workers
        Processes at a time.
    """

    quick: bool = False
    workers: int = 2


Measures = Mapping[str, Callable[[Run], Values]]


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of a paper, and the way to check it.

    Parameters
    ----------
    key
        Short and unique, such as ``"hios-fig7-lp-2"``.
    paper, where
        Such as "HIOS" and "Fig. 7".
    what
        The claim in one line, with its setting.
    published
        Their values by name.
    read
        How they were read: printed in a table or the text, off a bar of the figure, from the released code.
    rule
        When ours agree; see `agree`.
    measure
        Returns our values under the same names, and others if they help; None if they are not to be had here.
    because
        Why ours differ where they do, with the evidence; written after the run, and shown only then.
    missing
        Where there is nothing to run: "source not available" or "not reproducible here", and why.
    unit
        Of the values, such as "ms" or "x".
    """

    key: str
    paper: str
    where: str
    what: str
    read: str
    rule: str = ""
    published: Values = field(default_factory=dict)
    measure: Callable[[Run], Values] | None = None
    because: str = ""
    missing: str = ""
    unit: str = ""

    def __post_init__(self) -> None:
        assert (self.measure is None) == bool(self.missing), f"{self.key}: a claim is measured, or says why not"

    def verdict(self, ours: Values | None) -> str:
        """Return "reproduced", "differs: ...", or the missing part."""
        if ours is None:
            return self.missing
        agrees = agree(self.rule, self.published, ours)
        return "reproduced" if agrees else f"differs: {self.because or 'not explained yet'}"


def agree(rule: str, published: Values, ours: Values) -> bool:
    """Return whether our values agree with the published ones, by name.

    Parameters
    ----------
    rule
        ``"equal"`` (counts, worked examples); ``"within 5 %"`` of each published value (simulated there and here by the
        same equations), ``"within 25 %"`` (ratios measured on their device, simulated with uncalibrated priors here);
        ``"from 1 to 2"``: each of ours is, both ends included, whatever was published exactly;
        ``"same order, but for ties within 2 %"``: of two published ones so near either may be first.
    published, ours
        Values to compare; ours may have more names.
    """
    if found := re.fullmatch(r"from (\S+) to (\S+)", rule):
        low, high = map(float, found.groups())
        return all(low <= ours[name] <= high for name in published)
    if found := re.fullmatch(r"same order, but for ties within (\S+) %", rule):
        ties = float(found[1]) / 100
        pairs = permutations(published, 2)
        return all(ours[a] <= ours[b] for a, b in pairs if published[a] < published[b] - ties * abs(published[b]))
    found = re.fullmatch(r"within (\S+) %", rule)
    assert found or rule == "equal", f"no such rule: {rule}"
    fraction = float(found[1]) / 100 if found else 0.0
    return all(abs(ours[name] - value) <= fraction * abs(value) + 1e-9 for name, value in published.items())


def claims_of(papers: Iterable[str]) -> list[Claim]:
    """Return the claims of papers, in the order of their tables."""
    return [claim for paper in papers for claim in _claims(paper, import_module(f"validation.papers.{paper}").MEASURES)]


def _claims(paper: str, measures: Measures) -> list[Claim]:
    tables: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name(f"{paper}.toml").read_text("utf-8"))
    defaults, claims = tables.pop("defaults"), dict[str, Claim]()
    for key, row in tables.items():
        given: dict[str, Any] = {name: " ".join(text.split()) for name, text in (defaults | row).items()}
        text = given.pop("published", "")
        same = claims.get(text.removeprefix("as "))
        published = same.published if same else dict(map(_value, text.split("; "))) if text else {}
        claims[key] = Claim(key, PAPERS[paper], published=published, measure=measures.get(key), **given)
    assert measures.keys() <= claims.keys(), f"no rows: {measures.keys() - claims.keys()}"
    return list(claims.values())


def drawn_graph(times: str, edges: str, transfer: float | None = None) -> ss.OpGraph:
    """Return the graph of an example: operators v1, v2, ... of given us, and edges such as "1-2", or "5-6:2".

    That one takes 2 us between devices, others take `transfer`.
    """
    rows = [edge.replace(":", "-").split("-") for edge in edges.split()]
    return ss.OpGraph(
        [ss.Operator(f"v{i}", time=float(us)) for i, us in enumerate(times.split(), 1)],
        [ss.Edge(f"v{a}", f"v{b}", transfer=float(us[0]) if us else transfer) for a, b, *us in rows],
    )


def _value(text: str) -> tuple[str, float]:
    """Return the name and the number of a published value.

    >>> _value("batch 1: 6.2/3.1")
    ('batch 1', 2.0)
    """
    name, _, value = text.rpartition(": ")
    over, _, under = value.partition("/")
    return name, float(over) / float(under or 1)


# Outcomes: kept in a JSON file, printed as Markdown tables

DEVIATION: Final = "± "
"""Prefix of the name of a standard deviation; the name of its mean follows."""
COLUMNS: Final = ("where", "claim", "published (how read)", "ours", "agrees if", "verdict")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a claim.

    Parameters
    ----------
    ours
        Our values by name; None where there is nothing to run.
    verdict
        See `Claim.verdict`.
    seconds
        Wall time of measuring, in s; claims share work, and the first of them pays for it.
    """

    ours: Mapping[str, float] | None
    verdict: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Outcomes(Document):
    """Outcomes by key of the claim, and the version of the library that they are of."""

    FORMAT: ClassVar[str] = "simsched.papers"

    simsched: str
    claims: Mapping[str, Outcome]


def measure(claim: Claim, run: Run) -> Outcome:
    """Measure a claim.

    Raises
    ------
    FormatError
        If a published name has no value, or one that is no number.
    """
    if claim.measure is None:
        return Outcome(None, claim.missing)
    start = perf_counter()
    ours = {name: float(value) for name, value in claim.measure(run).items()}
    for name in claim.published:
        if not isfinite(ours.get(name, float("nan"))):
            raise FormatError(f"claim {claim.key!r} has no value of its own for {name!r}")
    return Outcome(ours, claim.verdict(ours), round(perf_counter() - start, 2))


def tables(claims: Sequence[Claim], outcomes: Mapping[str, Outcome]) -> str:
    """Return a Markdown table per paper: every claim, its outcome, and the meaning of the verdict."""
    parts = []
    for paper in dict.fromkeys(claim.paper for claim in claims):
        rows = (_cells(claim, outcomes.get(claim.key)) for claim in claims if claim.paper == paper)
        parts.append("\n".join([f"## {paper}", "", *table(COLUMNS, rows)]))
    return "\n\n".join(parts)


def _cells(claim: Claim, found: Outcome | None) -> tuple[str, ...]:
    ours, verdict = (values_text(found.ours, claim), found.verdict) if found else ("not run", "not run")
    published = f"{values_text(claim.published, claim)} ({claim.read})"
    return claim.where, claim.what, published, ours, claim.rule if claim.measure else "", verdict


def values_text(values: Values | None, claim: Claim) -> str:
    """Return values as a table shows them: a number, or numbers by name."""
    if not values:
        return "-"
    shown = []
    for name, value in values.items():
        if not name.startswith(DEVIATION):
            spread = values.get(f"{DEVIATION}{name}")
            shown.append(f"{name} {value:.4g}{'' if spread is None else f' ± {spread:.2g}'}".strip())
    return f"{', '.join(shown)} {claim.unit}".strip()


def verdicts(claims: Sequence[Claim], outcomes: Mapping[str, Outcome]) -> dict[str, int]:
    """Return how many claims came to which verdict."""
    found = [outcomes[claim.key].verdict.partition(":")[0] for claim in claims if claim.key in outcomes]
    return {verdict: found.count(verdict) for verdict in dict.fromkeys(found)}


def put_between(text: str, name: str, part: str) -> str:
    """Return a text with the part between two comments of a name replaced.

    Raises
    ------
    FormatError
        If the text does not have both, once.
    """
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise FormatError(f"the text needs the lines {begin} and {end}, once each")
    return re.sub(f"{re.escape(begin)}.*{re.escape(end)}", lambda _: f"{begin}\n{part}\n{end}", text, flags=re.DOTALL)
