"""The compiled engine: the model of `reference` with the same results, in machine code.

`simsched.simulator.state` says how a run lies in memory. `events` is the clock; `streams` and `gpu` are the model, and
`loop` is the entry. `prepared` lays a program and its cluster out, and `memory` runs it.
"""
