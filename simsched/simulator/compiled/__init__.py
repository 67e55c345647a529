"""The compiled engine: the model of `reference` with the same results, in machine code.

`layout` says how a run lies in memory and `tables` how compiled code reads it. `events` is the
clock; `hosts`, `streams`, `blocks`, `gpu` and `links` are the model, and `loop` is the entry.
`platform` lays a cluster out, `plan` a program, `run` runs it, and `engine` makes a trace of that.
"""
