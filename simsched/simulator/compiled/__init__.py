"""The compiled engine: the model of `reference` with the same results, in machine code.

`tables` says how a run lies in memory. `events` is the clock; `hosts`, `streams`, `blocks`, `gpu`
and `links` are the model, and `loop` is the entry. `platform` lays a cluster out, `lanes` finds the
streams of a program, `run` runs, and `plan` lays a program out and makes a trace of its run.
"""
