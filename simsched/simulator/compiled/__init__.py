"""The compiled engine: the model of `reference` with the same results, in machine code.

`layout` says how a run lies in memory and `tables` how compiled code reads it; `events` is the
clock, `hosts`, `streams`, `gpu` and `links` are the model, and `loop` is the entry. `plan` lays a
program out, `run` runs it.
"""
