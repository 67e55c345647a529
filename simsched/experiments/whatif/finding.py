"""What the results of all what-if analyses share."""

from dataclasses import dataclass
from typing import Any

from simsched.base.codec import Checked, Document, write
from simsched.base.errors import WhatIfError
from simsched.experiments.result import Result


@dataclass(frozen=True, repr=False, eq=False)
class Finding(Result, Checked, Document):
    """What an analysis of a schedule found.

    Parameters
    ----------
    graph, cluster
        Names of what ran, and on what.
    """

    SUBJECT, ERROR = "what was found of {0.graph!r}", WhatIfError
    graph: str
    cluster: str

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def records(self) -> list[dict[str, Any]]:
        """Return plain values by column, a dict per row."""
        return [write(row) for row in vars(self)["rows"]]
