"""How well the simulator predicts a backend: calibrate, schedule, predict, replay, compare, recalibrate."""

from simsched.experiments.accuracy.accuracy import Accuracy, Outcome, Round
from simsched.experiments.accuracy.rounds import validate

__all__ = ["Accuracy", "Outcome", "Round", "validate"]
