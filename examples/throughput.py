"""Latency of one request or requests per second? Several in flight fill what one schedule leaves idle."""

import simsched as ss
import workloads

graph = workloads.load("squeezenet")
cluster = ss.Cluster.preset("v100")
for name in ("sequential", "heft", "nimble"):
    plan = ss.schedule(graph, cluster, name)
    print(f"{name}: {ss.simulate(plan, cluster).makespan:.0f} us alone")
    for in_flight in (1, 2, 4):
        found = ss.throughput(plan, cluster, in_flight=in_flight)
        print(f"  {in_flight} in flight: {found.requests_per_s:5.0f} per s, latency {found.latency_us:4.0f} us")
