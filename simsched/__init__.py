"""Schedule the operators of a deep-learning model on one or several GPUs, in simulation first.

>>> import simsched as ss
>>> graph = ss.OpGraph([ss.Operator("a", time=3.0), ss.Operator("b", time=5.0)], [ss.Edge("a", "b")])
>>> cluster = ss.Cluster.preset("a100").without_overheads()
>>> ss.simulate(ss.schedule(graph, cluster, "lios"), cluster).makespan
8.0
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simsched.bounds import lower_bound
    from simsched.calibration import Calibration, calibrate, recalibrate
    from simsched.cluster import Cluster, Device, Link
    from simsched.comparison import Comparison, compare
    from simsched.costmodel import CostModel, default_cost, roofline
    from simsched.drawing import to_dot, to_svg
    from simsched.errors import SimschedError
    from simsched.graph import Edge, Kernel, Operator, OpGraph
    from simsched.optimum import Optimum, optimal
    from simsched.profile import Profile, Replay
    from simsched.program import Program
    from simsched.report import write_report
    from simsched.schedulers import SCHEDULERS, Scheduler, schedule
    from simsched.schedules import Placement, Schedule
    from simsched.simulator import Evaluator, Makespans, StageLatency, simulate, simulate_batch, simulate_many
    from simsched.study import Results, Study, run_study
    from simsched.trace import Span, Trace
    from simsched.whatif import (
        WhatIf,
        absolute,
        breakeven,
        explain,
        robust,
        sensitivity,
        throughput,
        what_if,
    )

_HOME = {
    "bounds": ("lower_bound",),
    "calibration": ("Calibration", "calibrate", "recalibrate"),
    "cluster": ("Cluster", "Device", "Link"),
    "comparison": ("Comparison", "compare"),
    "costmodel": ("CostModel", "default_cost", "roofline"),
    "drawing": ("to_dot", "to_svg"),
    "errors": ("SimschedError",),
    "graph": ("Edge", "Kernel", "OpGraph", "Operator"),
    "optimum": ("Optimum", "optimal"),
    "profile": ("Profile", "Replay"),
    "program": ("Program",),
    "report": ("write_report",),
    "schedules": ("Placement", "Schedule"),
    "schedulers": ("SCHEDULERS", "Scheduler", "schedule"),
    "simulator": ("Evaluator", "Makespans", "StageLatency", "simulate", "simulate_batch", "simulate_many"),
    "study": ("Results", "Study", "run_study"),
    "trace": ("Span", "Trace"),
    "whatif": ("WhatIf", "absolute", "breakeven", "explain", "robust", "sensitivity", "throughput", "what_if"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "SCHEDULERS",
    "Calibration",
    "Cluster",
    "Comparison",
    "CostModel",
    "Device",
    "Edge",
    "Evaluator",
    "Kernel",
    "Link",
    "Makespans",
    "OpGraph",
    "Operator",
    "Optimum",
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
    "breakeven",
    "calibrate",
    "compare",
    "default_cost",
    "explain",
    "lower_bound",
    "optimal",
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
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'simsched' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"simsched.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
