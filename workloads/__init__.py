"""What there is to schedule: networks and random graphs by name, and files of other tools.

>>> from workloads import from_spec, load, names
>>> names()[:3], len(names())
(['inception_v3', 'squeezenet', 'squeezenet1_1'], 35)
>>> len(load("inception_v3", batch=4))
119
>>> from_spec("random:layered,n_ops=50,n_layers=6,seed=3")
OpGraph('layered-50', 50 operators, 100 edges)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from workloads.registry import WORKLOADS, check_kind, from_spec, load, load_kind, names, read_spec

if TYPE_CHECKING:
    from workloads.formats.kineto.program import read_kineto_program
    from workloads.formats.rows import read_rows
    from workloads.random_dags import random_layered

__all__ = [
    "WORKLOADS",
    "check_kind",
    "from_spec",
    "load",
    "load_kind",
    "names",
    "random_layered",
    "read_kineto_program",
    "read_rows",
    "read_spec",
]


_LATER = {
    "random_layered": "workloads.random_dags",
    "read_kineto_program": "workloads.formats.kineto.program",
    "read_rows": "workloads.formats.rows",
}


def __getattr__(name: str) -> Any:
    # makes `from workloads import random_layered` work without importing it for those who do not
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
