"""All ways to run a small graph in stages, tried: what the dynamic program of IOS must find and count.

Written without anything of the library but names and edges.
"""

from itertools import combinations
from math import inf


def groups_of(stage, pairs):
    """Connected pieces of a set of names."""
    left, groups = set(stage), []
    while left:
        group = {min(left)}
        while True:
            near = {b for a, b in pairs if a in group} | {a for a, b in pairs if b in group}
            grown = group | (near & left)
            if grown == group:
                break
            group = grown
        groups.append(frozenset(group))
        left -= group
    return frozenset(groups)


def stages_of(left, pairs, *, last, r=None, s=None, single_root=False):
    """The groups of every stage that can run first, or last, of all that is left."""
    for size in range(1, len(left) + 1):
        for chosen in map(set, combinations(sorted(left), size)):
            out = [(b, a) if last else (a, b) for a, b in pairs if a in left and b in left]
            if any(b in chosen and a not in chosen for a, b in out):
                continue
            groups = groups_of(chosen, pairs)
            if s is not None and len(groups) > s:
                continue
            if r is not None and any(len(group) > r for group in groups):
                continue
            if single_root and any(sum(all((a, b) not in pairs for a in group) for b in group) > 1 for group in groups):
                continue
            yield groups


def try_all(graph, cost, **limits):
    """The least sum of stage costs over all schedules, and how many there are."""
    pairs = frozenset((edge.src, edge.dst) for edge in graph.edges)

    def run(left):
        if not left:
            return 0.0, 1
        best, schedules = inf, 0
        for groups in stages_of(left, pairs, last=False, **limits):
            rest, ways = run(left - frozenset().union(*groups))
            best, schedules = min(best, cost(groups) + rest), schedules + ways
        return best, schedules

    return run(frozenset(graph.names))


def endings(graph, **limits):
    """Every set of operators that can be left when stages are taken off the end, with the stages that can end it."""
    pairs = frozenset((edge.src, edge.dst) for edge in graph.edges)
    found = {}

    def peel(left):
        if left and left not in found:
            found[left] = list(stages_of(left, pairs, last=True, **limits))
            for groups in found[left]:
                peel(left - frozenset().union(*groups))

    peel(frozenset(graph.names))
    return found
