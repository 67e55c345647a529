"""Graphs rewritten into others that compute the same: merged convolutions and substitution rules."""

from simsched.rewriting.draft import Draft, Read, Row, Source
from simsched.rewriting.merging import merge, merge_key, merged_operators, merging_lacks, why_not_mergeable
from simsched.rewriting.rules import RULES, Rule

__all__ = [
    "RULES", "Draft", "Read", "Row", "Rule", "Source", "merge", "merge_key", "merged_operators", "merging_lacks",
    "why_not_mergeable",
]  # fmt: skip
