"""Experiments: comparisons, studies, what-if questions, and explanations of schedules."""
