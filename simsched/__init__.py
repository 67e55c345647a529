"""Schedule the operators of a deep-learning model on one or several GPUs, in simulation first.

>>> import simsched as ss
>>> graph = ss.OpGraph([ss.Operator("a", time=3.0), ss.Operator("b", time=5.0)], [ss.Edge("a", "b")])
>>> cluster = ss.Cluster.preset("a100").without_overheads()
>>> ss.simulate(ss.schedule(graph, cluster, "lios"), cluster).makespan
8.0
"""

import simsched.base.leaving  # noqa: F401 - from here on Ctrl-C ends a command without a traceback

# isort: split
import importlib
from types import FunctionType
from typing import TYPE_CHECKING, Any

import simsched.show as _show  # noqa: F401 - fills in how nouns show themselves
from simsched.base.arguments import door

if TYPE_CHECKING:
    from .base.errors import SimschedError
    from .bounds import lower_bound
    from .calibration import Calibration, calibrate, recalibrate
    from .experiments.advise import Advice, advise
    from .experiments.comparison import Comparison, compare
    from .experiments.duel import Duel, duel
    from .experiments.overlap import Overlaps, overlap
    from .experiments.study import Results, Study, run_study
    from .experiments.whatif import WhatIf, absolute, breakeven, explain, robust, sensitivity, throughput, what_if
    from .model import Cluster, Device, Edge, Kernel, Link, Operator, OpGraph, Placement, Program, Schedule
    from .model.costmodel import CostModel, default_cost, roofline
    from .model.profile import Profile, Replay
    from .model.trace import Span, Trace
    from .optimum import Optimum, optimal
    from .schedulers import SCHEDULERS, Scheduler, schedule
    from .show.drawing import to_dot, to_svg
    from .show.report import write_report
    from .simulator import Evaluator, Makespans, StageLatency, simulate, simulate_batch, simulate_many

_HOME = {
    "base.errors": ("SimschedError",),
    "bounds": ("lower_bound",),
    "calibration": ("Calibration", "calibrate", "recalibrate"),
    "experiments.advise": ("Advice", "advise"),
    "experiments.comparison": ("Comparison", "compare"),
    "experiments.duel": ("Duel", "duel"),
    "experiments.overlap": ("Overlaps", "overlap"),
    "experiments.study": ("Results", "Study", "run_study"),
    "experiments.whatif": (
        "WhatIf",
        "absolute",
        "breakeven",
        "explain",
        "robust",
        "sensitivity",
        "throughput",
        "what_if",
    ),
    "model": (
        "Cluster",
        "Collective",
        "CostModel",
        "Device",
        "Edge",
        "Kernel",
        "Link",
        "OpGraph",
        "Operator",
        "Partition",
        "Placement",
        "Program",
        "Schedule",
        "default_cost",
        "roofline",
    ),
    "model.profile": ("Profile", "Replay"),
    "model.trace": ("Span", "Trace"),
    "optimum": ("Optimum", "optimal"),
    "schedulers": ("SCHEDULERS", "Scheduler", "schedule"),
    "show.drawing": ("to_dot", "to_svg"),
    "show.report": ("write_report",),
    "simulator": ("Evaluator", "Makespans", "StageLatency", "simulate", "simulate_batch", "simulate_many"),
}
_UNCHECKED = ("default_cost", "roofline")  # cost models, which are called for each operator and sent to processes
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "SCHEDULERS",
    "Advice",
    "Calibration",
    "Cluster",
    "Collective",
    "Comparison",
    "CostModel",
    "Device",
    "Duel",
    "Edge",
    "Evaluator",
    "Kernel",
    "Link",
    "Makespans",
    "OpGraph",
    "Operator",
    "Optimum",
    "Overlaps",
    "Partition",
    "Placement",
    "Profile",
    "Program",
    "Replay",
    "Results",
    "Schedule",
    "Scheduler",
    "SimschedError",
    "Span",
    "StageLatency",
    "Study",
    "Trace",
    "WhatIf",
    "absolute",
    "advise",
    "breakeven",
    "calibrate",
    "compare",
    "default_cost",
    "duel",
    "explain",
    "lower_bound",
    "optimal",
    "overlap",
    "recalibrate",
    "robust",
    "roofline",
    "run_study",
    "schedule",
    "sensitivity",
    "simulate",
    "simulate_batch",
    "simulate_many",
    "throughput",
    "to_dot",
    "to_svg",
    "what_if",
    "write_report",
]


def __getattr__(name: str) -> Any:
    # names are imported when they are first used: `import simsched` stays fast
    if name == "__version__":
        from importlib.metadata import version

        return version("simsched")
    if name == "testing":
        return importlib.import_module("simsched.testing")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'simsched' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"simsched.{_MODULE_OF[name]}"), name)
    if isinstance(value, FunctionType) and name not in _UNCHECKED:
        value = door(value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
