"""From which link on do two GPUs pay? The schedule is made anew for each link, as it would be."""

import simsched as ss
import workloads
from simsched.base.units import GB_PER_S

graph = workloads.load("inception_v3", batch=16)
one = ss.Cluster.preset("a100")
alone = ss.simulate(ss.schedule(graph, one, "heft"), one).makespan
asked = ss.what_if(graph, ss.Cluster.preset("a100", 2), reschedule=True, scheduler="heft")

print(f"one a100:             {alone / 1000:6.2f} ms")
for gb_per_s in (8, 32, 128, 600):
    slower = asked.link(bandwidth=ss.absolute(gb_per_s * GB_PER_S))
    copies = sum(span.kind == "copy" for span in slower.after.spans)
    verdict = "pays" if slower.makespan < alone else "does not pay"
    print(f"two over {gb_per_s:3} GB/s:    {slower.makespan / 1000:6.2f} ms, {copies:2} copies, {verdict}")
