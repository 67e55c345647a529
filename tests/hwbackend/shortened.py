"""Programs that lack something."""

import numpy as np

from simsched.model.program import Program


def without(program, rows):
    """Return a program less some instructions: the number of one, or a mask of those that go."""
    keep = np.ones(len(program), bool)
    keep[rows] = False
    ptr = np.concatenate([[0], np.cumsum(keep)])[program.thread_ptr]
    columns = (getattr(program, name)[keep] for name in ("action", "device", "stream", "argument"))
    return Program(
        program.graph, program.devices, program.execution, ptr, *columns, program.copies, program.n_events,
        program.priority,
    )  # fmt: skip
