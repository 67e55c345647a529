"""How well the simulator predicts a backend: calibrate, schedule, predict, replay, compare, recalibrate."""

from simsched.experiments.accuracy.accuracy import Accuracy, Outcome, Round, load_accuracy
from simsched.experiments.accuracy.rounds import validate

__all__ = ["Accuracy", "Outcome", "Round", "load_accuracy", "validate"]
