"""What-if: questions about a schedule in a changed world, and analyses of the answers."""

from simsched.experiments.whatif.breakeven import BreakEven, Crossing, breakeven
from simsched.experiments.whatif.changes import Change, absolute, parse_change
from simsched.experiments.whatif.explain import Explanation, Suggestion, explain
from simsched.experiments.whatif.question import Answer, Case
from simsched.experiments.whatif.robust import Robustness, robust
from simsched.experiments.whatif.throughput import Throughput, throughput
from simsched.experiments.whatif.whatif import Elasticity, Sensitivity, Sweep, WhatIf, sensitivity, sweep, what_if

__all__ = [
    "Answer",
    "BreakEven",
    "Case",
    "Change",
    "Crossing",
    "Elasticity",
    "Explanation",
    "Robustness",
    "Sensitivity",
    "Suggestion",
    "Sweep",
    "Throughput",
    "WhatIf",
    "absolute",
    "breakeven",
    "explain",
    "parse_change",
    "robust",
    "sensitivity",
    "sweep",
    "throughput",
    "what_if",
]
