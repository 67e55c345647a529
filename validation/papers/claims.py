"""Claims of papers, held against our own values under tolerances that are fixed before anything is run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

Values = Mapping[str, float]
"""What is compared, by name: one number as ``{"": x}``, or a number per network, scheduler or point."""


class Rule(Protocol):
    """When our values agree with the published ones; `str` of it is what the table prints."""

    def __call__(self, published: Values, ours: Values) -> bool:
        """Return whether they agree."""
        ...


@dataclass(frozen=True, slots=True)
class Within:
    """Every value within a fraction of the published one; 0: equal."""

    fraction: float

    def __call__(self, published: Values, ours: Values) -> bool:
        """Return whether all do."""
        return all(abs(ours[name] - value) <= self.fraction * abs(value) + 1e-9 for name, value in published.items())

    def __str__(self) -> str:
        return f"within {100 * self.fraction:g} %" if self.fraction else "equal"


@dataclass(frozen=True, slots=True)
class SameOrder:
    """The values in the same order; of two published ones within `ties` of each other either may be first."""

    ties: float = 0.02

    def __call__(self, published: Values, ours: Values) -> bool:
        """Return whether no pair that is clearly ordered there is ordered the other way here."""
        names = list(published)
        return all(
            ours[a] <= ours[b]
            for a in names
            for b in names
            if published[a] < published[b] - self.ties * abs(published[b])
        )

    def __str__(self) -> str:
        return f"same order, but for ties within {100 * self.ties:g} %"


@dataclass(frozen=True, slots=True)
class Between:
    """Every value of ours within fixed ends, both included, whatever the published ones are exactly."""

    low: float
    high: float

    def __call__(self, published: Values, ours: Values) -> bool:
        """Return whether all are."""
        return all(self.low <= ours[name] <= self.high for name in published)

    def __str__(self) -> str:
        return f"from {self.low:g} to {self.high:g}"


EXACT: Final = Within(0.0)  # counts, worked examples
SAME_MODEL: Final = Within(0.05)  # simulated there and here, by the same equations
ACROSS_HARDWARE: Final = Within(0.25)  # a ratio measured on their device, simulated with uncalibrated priors here
ORDER: Final = SameOrder()


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


@dataclass(frozen=True, slots=True)
class Claim:
    """What a paper says, and how we look whether it is so.

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
        When ours agree, fixed before they are known.
    measure
        Returns our values under the same names, and others if they help; None if it is not to be had here.
    command
        What anyone can type to see our values; by default the run of this claim alone.
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
    published: Values
    read: str
    rule: Rule = field(default=ACROSS_HARDWARE)
    measure: Callable[[Run], Values] | None = None
    command: str = ""
    because: str = ""
    missing: str = ""
    unit: str = ""

    def __post_init__(self) -> None:
        assert (self.measure is None) == bool(self.missing), f"{self.key}: a claim is measured, or says why not"

    def verdict(self, ours: Values | None) -> str:
        """Return "reproduced", "differs: ...", or what is missing."""
        if ours is None:
            return self.missing
        if self.rule(self.published, ours):
            return "reproduced"
        return f"differs: {self.because or 'not explained yet'}"
