"""Values that live as long as their objects, and objects that live no longer for them."""

import gc
import pickle
import weakref

import simsched as ss
import workloads
from simsched.base.memo import Memo, memo


class Thing:
    """An object that equals every other one."""

    def __eq__(self, other):
        return True

    __hash__ = None


def test_values_belong_to_objects_and_not_to_equal_ones():
    values = Memo()
    one, other = Thing(), Thing()
    assert values.put(one, "one") == "one"
    assert (values.get(one), values.get(other)) == ("one", None)
    values.put(other, "other")
    values.put(one, "again")
    assert (values.get(one), values.get(other), len(values)) == ("again", "other", 2)


def test_a_value_is_dropped_with_its_object():
    """A new object at the place of an old one has no value, however often that happens."""
    values = Memo()
    for i in range(1000):
        thing = Thing()
        assert values.get(thing) is None
        values.put(thing, i)
        values.put(thing, i + 1)
        assert len(values) == 1
    del thing
    assert len(values) == 0


def test_a_result_of_none_is_kept_and_an_error_is_not():
    calls = []

    @memo
    def ask(thing):
        calls.append(thing)
        if len(calls) == 1:
            raise ValueError("not yet")

    thing = Thing()
    try:
        ask(thing)
    except ValueError:
        assert ask(thing) is None
    assert ask(thing) is None
    assert len(calls) == 2


def test_simulated_objects_are_freed():
    """Schedule, program and cluster have values, of which one knows a program; none of them lives on."""
    graph = workloads.load("tiny_inception", image_size=16)
    cluster = ss.Cluster.preset("a40", 2)
    schedule = ss.schedule(graph, cluster, "hios-lp")
    program = schedule.lower(cluster)
    assert schedule.lower(cluster) is program
    first = ss.simulate(program, cluster).makespan
    assert ss.simulate(program, cluster, engine="reference").makespan == first
    assert ss.simulate_many(schedule, cluster, n=2, jitter=0.1, rng=1).values.shape == (2,)
    same = pickle.loads(pickle.dumps((schedule, program, cluster)))
    assert ss.simulate(same[1], same[2]).makespan == first
    things = [weakref.ref(thing) for thing in (graph, cluster, schedule, program, *same)]
    del graph, cluster, schedule, program, same
    gc.collect()
    assert [thing() for thing in things] == [None] * len(things)
