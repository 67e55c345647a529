"""Which scheduler for a network on one GPU, and how far the best one is from a bound that none can beat."""

import simsched as ss
import workloads

graph = workloads.load("squeezenet", batch=1)
cluster = ss.Cluster.preset("v100")
found = ss.compare(graph, cluster, ["sequential", "greedy", "lios", "heft", "nimble", "opara"])

print(f"{graph.name}: {len(graph)} operators, {len(graph.edges)} edges")
for row in sorted(found.rows, key=lambda row: row.makespan_us):
    speed = f"{row.makespan_us:6.1f} us  {row.speedup:.2f}x"
    print(f"{row.scheduler:<10}  {speed}  {row.streams:2} streams  {row.syncs:2} syncs")

best = found.best()
path = found.traces[best.scheduler].critical_path()
print(f"best: {best.scheduler}, at most {best.over_bound - 1:.0%} above any schedule of this graph")
print("its critical path:", ", ".join(f"{name} {share:.0%}" for name, share in path.shares.items() if share >= 0.005))
