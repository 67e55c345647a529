"""What-if: questions of a schedule with one thing or several different, and what follows from the answers."""

from simsched.whatif.answer import Answer, Case
from simsched.whatif.breakeven import BreakEven, Crossing, breakeven
from simsched.whatif.changes import Change, absolute, parse_change
from simsched.whatif.explain import Explanation, explain
from simsched.whatif.parameters import numeric_parameters, value_of
from simsched.whatif.question import WhatIf, what_if
from simsched.whatif.robust import Robust, Robustness, robust
from simsched.whatif.sensitivity import Elasticity, Sensitivity, sensitivity
from simsched.whatif.suggestions import Suggestion
from simsched.whatif.sweep import Sweep, sweep
from simsched.whatif.throughput import Throughput, throughput

__all__ = [
    "Answer",
    "BreakEven",
    "Case",
    "Change",
    "Crossing",
    "Elasticity",
    "Explanation",
    "Robust",
    "Robustness",
    "Sensitivity",
    "Suggestion",
    "Sweep",
    "Throughput",
    "WhatIf",
    "absolute",
    "breakeven",
    "explain",
    "numeric_parameters",
    "parse_change",
    "robust",
    "sensitivity",
    "sweep",
    "throughput",
    "value_of",
    "what_if",
]
