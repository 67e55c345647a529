"""The surrogate GPU of the synthetic backend, whose SMs hold single blocks.

`truth` draws the parameters that nobody is told. `blocks` is the block scheduler in machine code, and `sms` calls it.
`plan` lays out a program; `run` is everything around the blocks: host threads, streams, events, with `copies` and the
`clock`. `values` checks that operators read written memory.
"""
