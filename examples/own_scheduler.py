"""A scheduler is a function: this one keeps each operator on the stream of its largest input."""

import simsched as ss
import workloads


def follow(graph, cluster, cost, *, streams=4):
    """Stay on the stream of the producer of most bytes, unless a sibling stayed there before; else deal out."""
    producers = {name: [] for name in graph.order}
    for edge in graph.edges:
        producers[edge.dst].append((-edge.nbytes, edge.src))
    stream_of, followed, placements = {}, {}, []
    for i, name in enumerate(graph.order):
        free = [src for _, src in sorted(producers[name]) if src not in followed]
        stream_of[name] = stream_of[free[0]] if free else i % streams
        if free:
            followed[free[0]] = name
        placements.append(ss.Placement(name, device=cluster.devices[0].name, stream=stream_of[name]))
    return ss.Schedule(graph, placements, scheduler="follow")


cluster = ss.Cluster.preset("a100")
for spec in ("inception_v3", "squeezenet", "googlenet"):
    graph = workloads.from_spec(spec)
    follow(graph, cluster, ss.default_cost).check(cluster)  # raises ScheduleError where it cannot run
    found = ss.compare(graph, cluster, ["sequential", "lios", follow])
    print(f"{spec:<12}", *(f"{row.scheduler} {row.makespan_us:4.0f} us" for row in found.rows), sep="  ")
