"""Outcomes of claims: kept in a JSON file, printed as Markdown tables."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from time import perf_counter
from typing import ClassVar, Final

from simsched.base.codec import Document
from simsched.base.errors import FormatError
from validation.markdown import table
from validation.papers.claims import Claim, Run, Values

DEVIATION: Final = "± "
"""What the name of a standard deviation begins with; that of its mean follows."""
COLUMNS: Final = ("where", "claim", "published (how read)", "ours", "agrees if", "verdict")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a claim came to.

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


def judged(claim: Claim, found: Outcome) -> Outcome:
    """Return an outcome with the verdict that the claim has by now."""
    return replace(found, verdict=claim.verdict(found.ours))


def tables(claims: Sequence[Claim], outcomes: Mapping[str, Outcome]) -> str:
    """Return a Markdown table per paper: every claim, its outcome, and what the verdict is."""
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
    """Return a text with what stands between two comments of a name replaced.

    Raises
    ------
    FormatError
        If the text does not have both, once.
    """
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise FormatError(f"the text needs the lines {begin} and {end}, once each")
    return re.sub(f"{re.escape(begin)}.*{re.escape(end)}", lambda _: f"{begin}\n{part}\n{end}", text, flags=re.DOTALL)
