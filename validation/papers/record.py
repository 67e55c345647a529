"""Outcomes of claims: run one after the other, kept in a JSON file, printed as a Markdown table."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import isfinite
from time import perf_counter
from typing import Any, Final

from simsched.base.errors import FormatError
from simsched.base.io import document, dump_json, read_json
from validation.papers.claims import Claim, Run, Values

PAPERS: Final = ("ios", "lios", "hios", "opara", "nimble", "autograph")
"""Modules of this package with a tuple ``CLAIMS``."""

DEVIATION: Final = "± "
"""What the name of a standard deviation begins with; that of its mean follows."""

_FORMAT: Final = "simsched.papers"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a claim came to.

    Parameters
    ----------
    ours
        Our values by name; None where there is nothing to run.
    seconds
        Wall time of measuring, in s; claims share work, and the first of them pays for it.
    """

    ours: Values | None
    seconds: float = 0.0


def claims_of(papers: Iterable[str]) -> list[Claim]:
    """Return the claims of papers, in their order.

    Raises
    ------
    FormatError
        If two have the same key.
    """
    claims = [claim for paper in papers for claim in import_module(f"validation.papers.{paper}").CLAIMS]
    keys = [claim.key for claim in claims]
    for key in keys:
        if keys.count(key) > 1:
            raise FormatError(f"two claims have the key {key!r}")
    return claims


def measure(claim: Claim, run: Run) -> Outcome:
    """Measure a claim.

    Raises
    ------
    FormatError
        If a published name has no value, or one that is no number.
    """
    if claim.measure is None:
        return Outcome(None)
    start = perf_counter()
    ours = {name: float(value) for name, value in claim.measure(run).items()}
    for name in claim.published:
        if not isfinite(ours.get(name, float("nan"))):
            raise FormatError(f"claim {claim.key!r} has no value of its own for {name!r}")
    return Outcome(ours, round(perf_counter() - start, 2))


def read(path: str) -> dict[str, Outcome]:
    """Return the outcomes that a file holds, by key of the claim."""
    record = document(read_json(path), _FORMAT, _VERSION, path)
    record.take("simsched", str)
    rows: Mapping[str, Any] = record.take("claims", dict)
    record.done()
    return {key: Outcome(row["ours"], row["seconds"]) for key, row in rows.items()}


def dump(outcomes: Mapping[str, Outcome], claims: Sequence[Claim]) -> str:
    """Return the outcomes of claims as the text of a file, with the verdict of each."""
    import simsched

    kept = {
        claim.key: {
            "ours": None if (found := outcomes[claim.key]).ours is None else dict(found.ours or {}),
            "verdict": claim.verdict(found.ours),
            "seconds": found.seconds,
        }
        for claim in claims
        if claim.key in outcomes
    }
    return dump_json({"format": _FORMAT, "version": _VERSION, "simsched": simsched.__version__, "claims": kept})


def table(claims: Sequence[Claim], outcomes: Mapping[str, Outcome]) -> str:
    """Return a Markdown table per paper: every claim, its outcome, and what the verdict is."""
    parts: list[str] = []
    for paper in dict.fromkeys(claim.paper for claim in claims):
        heading = "| where | claim | published (how read) | ours | agrees if | verdict |"
        lines = [f"## {paper}", "", heading, "|---" * 6 + "|"]
        for claim in (each for each in claims if each.paper == paper):
            found = outcomes.get(claim.key)
            ours = verdict = "not run"
            if found is not None:
                ours, verdict = values_text(found.ours, claim), claim.verdict(found.ours)
            rule = "" if claim.measure is None else str(claim.rule)
            published = f"{values_text(claim.published, claim)} ({claim.read})"
            cells = (claim.where, claim.what, published, ours, rule, verdict)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def values_text(values: Values | None, claim: Claim) -> str:
    """Return values as a table shows them: a number, or numbers by name."""
    if not values:
        return "-"
    unit = f" {claim.unit}" if claim.unit else ""
    shown = []
    for name, value in values.items():
        if not name.startswith(DEVIATION):
            spread = values.get(f"{DEVIATION}{name}")
            shown.append(f"{name} {value:.4g}{'' if spread is None else f' ± {spread:.2g}'}".strip())
    return ", ".join(shown) + unit


def verdicts(claims: Sequence[Claim], outcomes: Mapping[str, Outcome]) -> dict[str, int]:
    """Return how many claims came to which verdict."""
    found = [claim.verdict(outcomes[claim.key].ours).partition(":")[0] for claim in claims if claim.key in outcomes]
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
