"""Graphs rewritten into others that compute the same: merged convolutions and substitution rules."""

from simsched.rewriting.accounting import account_for, rewritten
from simsched.rewriting.draft import DraftRow, GraphDraft, Read, Source
from simsched.rewriting.merging import can_merge, merge, merge_key, merged_operators, merging_lacks
from simsched.rewriting.rule import Rule
from simsched.rewriting.rules import RULES

__all__ = [
    "RULES",
    "DraftRow",
    "GraphDraft",
    "Read",
    "Rule",
    "Source",
    "account_for",
    "can_merge",
    "merge",
    "merge_key",
    "merged_operators",
    "merging_lacks",
    "rewritten",
]
