"""The measured choice among compiled variants: in turns, within a budget, and only beyond the noise."""

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from simsched.base.errors import FileError, FormatError
from simsched.base.io import write_file

PLAIN: Final = "plain"
LEAST_ROUNDS: Final = 5
MOST_ROUNDS: Final = 200
LEAST_GAIN: Final = 0.02
"""Share of the time that a variant has to save at least, whatever the noise is."""

_logger = logging.getLogger(__name__)
_TO_SIGMA: Final = 1.4826  # of a normal distribution, from its median absolute deviation
_OF_MEDIAN: Final = 1.2533  # standard error of a median, over the one of a mean
_SIGMAS: Final = 3.0


@dataclass(frozen=True)
class KeptPlan:
    """The order of kernels on streams that was measured.

    Parameters
    ----------
    kernels
        Names of those that launch, in the order in which they are issued.
    streams
        The stream of each.
    timed
        How many had a time of each source, see `hwbackend.torch.inductor.report.Report`.
    """

    kernels: tuple[str, ...]
    streams: tuple[int, ...]
    timed: Mapping[str, int]


@dataclass(frozen=True)
class VariantChoice:
    """Which variant runs, and why.

    Parameters
    ----------
    name
        The variant.
    times
        Median time in us of a call of each variant that was measured.
    noise
        Time in us by which a variant had to be faster than the one that was chosen before it.
    rounds
        How often each was measured.
    plan
        Of a variant with streams: measured times of kernels, and so the plan, would not be the same again.
    """

    name: str
    times: Mapping[str, float]
    noise: Mapping[str, float]
    rounds: int
    plan: KeptPlan | None = None


def choose(
    names: Sequence[str],
    timed: Callable[[str], float],
    budget_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> VariantChoice:
    """Measure variants in turns and return the fastest by more than the noise.

    Parameters
    ----------
    names
        The simplest first: a later one is chosen only where it is faster than the one chosen so far.
    timed
        Time in us of one call of a variant.
    budget_s
        Seconds for all rounds; no round begins after them.
    clock
        Seconds.

    Notes
    -----
    Noise is three standard errors of the median of the differences in the same round, and at least 2 % of the time.
    Where the budget does not allow for five rounds, the first one stays.
    """
    begin = clock()
    rows: list[list[float]] = []
    while len(rows) < MOST_ROUNDS and (not rows or clock() - begin < budget_s):
        rows.append([timed(name) for name in names])
    times = np.array(rows)  # (rounds, variants)
    medians = dict(zip(names, np.median(times, axis=0).tolist(), strict=True))
    chosen = 0
    noise = {}
    for i in range(1, len(names)):
        gains = times[:, chosen] - times[:, i]
        gain = float(np.median(gains))
        error = _TO_SIGMA * _OF_MEDIAN * float(np.median(np.abs(gains - gain))) / len(rows) ** 0.5
        noise[names[i]] = max(_SIGMAS * error, LEAST_GAIN * medians[names[chosen]])
        if len(rows) >= LEAST_ROUNDS and gain > noise[names[i]]:
            chosen = i
    return VariantChoice(names[chosen], medians, noise, len(rows))


def key_of(parts: Sequence[Any]) -> str:
    """Return a name for what a choice depends on, by the text of its parts."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:32]


def read_choice(key: str) -> VariantChoice | None:
    """Return the choice that an earlier process kept, or None."""
    path = _path(key)
    try:
        if path is None or not path.exists():
            return None
        data = json.loads(path.read_text(encoding="utf-8"))
        plan = data["plan"]
        if plan is not None:
            timed = {source: int(count) for source, count in plan["timed"].items()}
            plan = KeptPlan(tuple(map(str, plan["kernels"])), tuple(map(int, plan["streams"])), timed)
        times = {name: float(time) for name, time in data["times"].items()}
        noise = {name: float(time) for name, time in data["noise"].items()}
        return VariantChoice(str(data["name"]), times, noise, int(data["rounds"]), plan)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        _logger.debug("%s", FormatError(f"the choice in {path} cannot be read: {error}"))
        return None


def remember(key: str, choice: VariantChoice) -> None:
    """Keep a choice for later processes; where nothing can be written, they measure again."""
    path = _path(key)
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(asdict(choice)))
    except (OSError, FileError) as error:
        _logger.debug("the choice in %s cannot be kept: %s", path, error)


def _path(key: str) -> Path | None:
    """Return the file of a choice; None for a user without a home."""
    root = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = Path(root) if root else Path.home() / ".cache"
    except RuntimeError:
        return None
    return folder / "simsched" / "torch-compile" / f"{key}.json"
