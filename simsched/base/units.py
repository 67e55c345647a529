"""Units of the library: microseconds, bytes and floating-point operations.

A quantity given in another unit is multiplied by its constant once, where it enters
(``Link(bandwidth=600 * GB_PER_S)``); formulas inside the library carry no factor.

>>> 4 * MS, 600 * GB_PER_S, 2 * MIB
(4000.0, 600000.0, 2097152)
"""

from math import floor, isfinite, log10
from typing import Final

US = 1.0
"""One microsecond, the unit of time."""
MS = 1e3
"""Microseconds in a millisecond."""
SECOND = 1e6
"""Microseconds in a second."""

KIB = 1 << 10
"""Bytes in a kibibyte."""
MIB = 1 << 20
"""Bytes in a mebibyte."""
GIB = 1 << 30
"""Bytes in a gibibyte."""

GB_PER_S = 1e3
"""Bytes per microsecond in one gigabyte (10^9) per second."""
TFLOP_PER_S = 1e6
"""FLOP per microsecond in 10^12 FLOP per second."""
MHZ = 1.0
"""Cycles per microsecond in one megahertz."""

TIE = 1e-9
"""Times closer than this, relatively, are the same instant ..."""
TIE_LIMIT = 1e9
"""... up to this time in us; later instants are as long as there, 1 us."""


_UNITS = ((SECOND, "s"), (MS, "ms"), (US, "us"))


def time_unit(longest: float) -> tuple[float, str]:
    """Return the unit, in us and by name, in which times up to `longest` us read well."""
    return next((unit for unit in _UNITS if longest >= unit[0]), _UNITS[-1])


def format_time(us: float) -> str:
    """Return a time in us as text, in the unit that reads best.

    >>> format_time(12.34), format_time(3456.0), format_time(2.5e6)
    ('12.3 us', '3.456 ms', '2.500 s')
    """
    if us < MS:
        if us < 100:
            return f"{us:.3g} us"
        return f"{us:.1f} us"
    scale, unit = time_unit(us)
    return f"{us / scale:.3f} {unit}"


def format_bytes(nbytes: float) -> str:
    """Return a size in bytes as text.

    >>> format_bytes(512), format_bytes(5 * MIB)
    ('512 B', '5.0 MiB')
    """
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:.1f} {name}"
    return f"{nbytes:.0f} B"


_SPANS: Final = ((2.0, 1), (1.1, 2))
"""From which ratio of the ends of its range on a gain is told to so few significant digits."""


def format_gain(
    gain: float, low: float | None = None, high: float | None = None, unit: str = "x", note: str = ""
) -> str:
    """Return a speedup as text, with its range, and with no more digits than the range leaves.

    It has one significant digit if the ends of the range differ by a factor of two or more, two from 1.1 on, else
    three. The ends have two, or three; where the one digit lies out of these, they have one, too. Without a range, or
    where it has no width, a speedup has two decimals.

    >>> format_gain(1.987), format_gain(1.987, 1.6, 2.31), format_gain(6.65, 1.3, 7.2), format_gain(6.65, 1.3, 6.9)
    ('1.99x', '2.0x (1.6-2.3)', '7x (1.3-7.2)', '7x (1-7)')
    >>> format_gain(1.987, 1.95, 2.0, " times", ", calibrated")
    '1.99 times (1.95-2.00, calibrated)'
    """
    if low is None or high is None or low == high:
        return f"{gain:.2f}{unit}"
    digits = next((digits for ratio, digits in _SPANS if high >= ratio * low), 3)
    text = _significant(gain, digits)
    least, most = (_significant(end, max(2, digits)) for end in (low, high))
    if not float(least) <= float(text) <= float(most):
        least, most = (_significant(end, digits) for end in (low, high))
    return f"{text}{unit} ({least}-{most}{note})"


def _significant(number: float, digits: int) -> str:
    """Return a number that is not negative with some significant digits, without an exponent."""
    if number == 0 or not isfinite(number):
        return f"{number:g}"
    rounded = float(f"{number:.{digits - 1}e}")
    return f"{rounded:.{max(0, digits - 1 - floor(log10(rounded)))}f}"
