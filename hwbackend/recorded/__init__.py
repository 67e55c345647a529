"""Answers from files of earlier measurements."""
