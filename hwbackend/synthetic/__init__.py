"""A GPU made up of SMs that hold single blocks: what the synthetic backend runs programs on.

`truth` draws the parameters that nobody is told. `blocks` is the block scheduler in machine code, and `sms` calls it.
`plan` lays out a program; `run` is everything around the blocks: host threads, streams, events, with `copies` and the
`clock`. `values` says whether operators read what had been written.
"""
