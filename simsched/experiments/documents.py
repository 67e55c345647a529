"""Kinds of files: their loaders and their JSON schemas."""

from typing import Any, Final

from simsched.base.codec import Document, schema_of
from simsched.base.errors import UnknownNameError
from simsched.base.views import Imported

DOCUMENTS: Final = Imported[type[Document]](
    {
        "simsched.graph": "simsched.model.graph:OpGraph",
        "simsched.schedule": "simsched.model.schedule:Schedule",
        "simsched.program": "simsched.model.program:Program",
        "simsched.cluster": "simsched.model.cluster:Cluster",
        "simsched.gpu": "simsched.model.cluster:GpuSheet",
        "simsched.profile": "simsched.model.profile:Profile",
        "simsched.replay": "simsched.model.profile:Replay",
        "simsched.calibration": "simsched.calibration:Calibration",
        "simsched.study": "simsched.experiments.study.store:StudyFile",
        "simsched.accuracy": "simsched.experiments.accuracy:Accuracy",
        "simsched.comparison": "simsched.experiments.comparison:Comparison",
        "simsched.whatif": "simsched.experiments.whatif:Answer",
        "simsched.sweep": "simsched.experiments.whatif:Sweep",
        "simsched.sensitivity": "simsched.experiments.whatif:Sensitivity",
        "simsched.breakeven": "simsched.experiments.whatif:BreakEven",
        "simsched.explanation": "simsched.experiments.whatif:Explanation",
        "simsched.robustness": "simsched.experiments.whatif:Robustness",
        "simsched.advice": "simsched.experiments.advise:Advice",
        "simsched.overlap": "simsched.experiments.overlap:Overlaps",
        "simsched.duel": "simsched.experiments.duel:Duel",
        "simsched.throughput": "simsched.experiments.whatif:Throughput",
    }
)
"""Classes by the format of their files: each has `from_dict` and `to_dict`, `load` and `save`."""


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a format: draft 2020-12, units in the descriptions.

    Parameters
    ----------
    name
        One of `DOCUMENTS`.

    Raises
    ------
    UnknownNameError
        If no format has this name; the message lists all formats.

    Notes
    -----
    The loaders accept every document that fits the schema, except for faults that a schema cannot express: names that
    are not unique, references to missing names, cycles in a graph, lists that belong together and differ in length, and
    the like. See ``docs/formats.md``.

    >>> found = schema("simsched.graph")
    >>> found["$defs"]["Operator"]["properties"]["time"]["description"]
    'Time alone on the device in us, or None to have it estimated from the rest.'
    """
    if name not in DOCUMENTS:
        raise UnknownNameError("schema", name, list(DOCUMENTS))
    return schema_of(DOCUMENTS[name])
