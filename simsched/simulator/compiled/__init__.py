"""The compiled engine: the model of `reference` with the same results, in machine code.

`tables` says how a run lies in memory. `events` is the clock; `hosts`, `streams`, `blocks`, `gpu`
and `links` are the model, and `loop` is the entry. `lanes` finds the streams of a program, `plan`
lays it and its cluster out, and `run` runs it.
"""
