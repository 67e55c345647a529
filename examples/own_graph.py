"""A graph written down, scheduled in two ways and followed by hand.

`load` feeds `big` and `small`, and `join` needs both. Alone they take 10, 30, 20 and 5 us; `big` and `small` load 60 %
of the GPU each. Together they ask for 120 %, so both run at 1/1.2 of their pace: after 24 us `small` is done, and of
`big` 10 us are left. In all 10 + 24 + 10 + 5 = 49 us rather than 65 one after the other, or 45 along the longest path.
"""

import simsched as ss

graph = ss.OpGraph(
    [
        ss.Operator("load", time=10.0, utilization=1.0),
        ss.Operator("big", time=30.0, utilization=0.6),
        ss.Operator("small", time=20.0, utilization=0.6),
        ss.Operator("join", time=5.0, utilization=1.0),
    ],
    [ss.Edge("load", "big"), ss.Edge("load", "small"), ss.Edge("big", "join"), ss.Edge("small", "join")],
    name="diamond",
)
cluster = ss.Cluster.preset("a40").without_overheads()  # launches and events for nothing, so that it can be followed

for scheduler in ("sequential", "heft"):
    plan = ss.schedule(graph, cluster, scheduler)
    trace = ss.simulate(plan, cluster)
    print(f"{scheduler}: {trace.makespan:.1f} us")
    for span in trace.spans:
        if span.kind == "kernel":
            print(f"  {span.op:<6} stream {span.stream}  {span.start:5.1f} to {span.end:5.1f}")
    print("  blame:", {name: round(us, 1) for name, us in trace.critical_path().blame.items() if us})
