"""Opara's claims: IEEE Transactions on Computers 2024, doi:10.1109/TC.2024.3475589, and its version of 2023.

Heights of bars are read off the vector drawings in the published PDF; ratios are of such heights. Size and sign of a
gain are two claims: a ratio near 1 is within any tolerance of 1, so where the printed gain is small only its sign is
asked for.
"""

from typing import Final

from validation.papers import opara_batches, opara_orders, opara_speedups, opara_streams
from validation.papers.claims import Claim

CLAIMS: Final[tuple[Claim, ...]] = (
    *opara_orders.CLAIMS,
    *opara_speedups.CLAIMS,
    *opara_streams.CLAIMS,
    *opara_batches.CLAIMS,
)
