"""What bounds a schedule: critical path, blame, load and memory, from the trace."""

import simsched as ss
import workloads

graph = workloads.load("inception_v3")
cluster = ss.Cluster.preset("a100")
trace = ss.simulate(ss.schedule(graph, cluster, "greedy"), cluster)
path = trace.critical_path()

print(f"{trace.makespan:.0f} us, of which")
for blame, us in sorted(path.blame.items(), key=lambda item: -item[1]):
    if us >= 1:
        print(f"  {us:6.0f} us  {blame}")
print("longest stretches of the critical path:")
for step in sorted(path.steps, key=lambda step: step.start - step.end)[:4]:
    print(f"  {step.end - step.start:6.0f} us  {step.blame:<10}  {step.span}")
print(f"issue slots in use {trace.sm_utilization():.0%}, SMs with a block {trace.sm_efficiency():.0%}")
print(f"peak memory {trace.peak_memory()['gpu0'] / 2**20:.0f} MiB")
