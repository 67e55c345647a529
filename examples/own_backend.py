"""A backend is any object with six attributes; of its methods only `replay` is work.

This "device" is the simulator with operators a fifth slower than stated. Calibration has to find the fifth.
"""

import hwbackend
import simsched as ss
import workloads
from hwbackend import profiling
from hwbackend.preparing import environment
from hwbackend.synth import realised
from simsched.model.backend import prepare
from simsched.model.profile import Replay
from simsched.model.trace import measured_trace


class Slower:
    """Replays on the simulator, with times 1.2 times as long."""

    name = "slower"
    cluster = ss.Cluster.preset("a40")

    def realise(self, graph):
        """Return the graph with kernels for operators that have none."""
        return realised(graph, self.cluster)

    def microbenchmarks(self):
        """Measure the overheads, with what every backend shares."""
        return profiling.microbenchmarks(self)

    def profile(self, graph, *, in_situ=8, rng=0):
        """Measure operators in place, with what every backend shares."""
        return profiling.profile(self, graph, in_situ, rng)

    def replay(self, schedule, *, repeats=20, warmup=3):
        """Run a schedule; a real backend issues, times and checks outputs here."""
        program = prepare(self, schedule, repeats, warmup)  # checked, over the realised graph, lowered
        trace = ss.simulate(program, self.cluster, lambda op, device: 1.2 * ss.roofline(op, device))
        number = program.graph.index  # launches are in graph order, an operator's kernels as they run
        kernels = sorted((number[span.op], span.start, span.end) for span in trace.spans if span.kind == "kernel")
        run = measured_trace(program, self.cluster, [(start, end) for _, start, end in kernels])
        where = environment(self.name, "a slower a40")
        return Replay((run.makespan,) * repeats, run, where, None, getattr(schedule, "scheduler", "replay"))


backend: hwbackend.Backend = Slower()
graph = backend.realise(workloads.load("tiny_inception"))
for name, known in (("preset", backend.cluster), ("calibrated", ss.calibrate(None, backend.profile(graph, in_situ=2)))):
    plan = ss.schedule(graph, known, "heft")
    error = abs(ss.simulate(plan, known).makespan / backend.replay(plan, repeats=1).median - 1)
    print(f"{name:<10}  {'within' if error < 0.02 else 'not within'} 2 % of what is measured")
