"""Workers, streams and events of the cpu backend, with blocks that are functions of the test.

Blocks that meet at a barrier run side by side, however loaded this machine is; nothing is proved by a clock.
"""

import os
import signal
import sys
import threading
import time

import pytest
from cpu_programs import NoValues, machine, program

from simsched.base.errors import BackendError

PATIENCE = 30.0


@pytest.fixture(autouse=True)
def _leaves_nothing_behind():
    """No thread, no pinning, no other switch interval is left, whatever a test did."""
    before, cores, interval = threading.active_count(), os.sched_getaffinity(0), sys.getswitchinterval()
    yield
    assert threading.active_count() == before
    assert os.sched_getaffinity(0) == cores
    assert sys.getswitchinterval() == interval


def order_of(prog, sms=1):
    """The order in which blocks ran on one worker."""
    log = []
    with machine(prog, sms, lambda name, number: log.append(name)) as m:
        m.run(NoValues(), PATIENCE)
    return log


def meeting(*pairs):
    """Blocks that each wait for the other block of a pair to begin."""
    gates = {block: threading.Barrier(2) for block in ()}
    for pair in pairs:
        gate = threading.Barrier(2)
        gates.update(dict.fromkeys(pair, gate))
    return lambda name, number: gates[name, number].wait(PATIENCE)


def test_kernels_of_two_streams_run_side_by_side():
    """Each of two one-block kernels ends only once the other has begun; their spans overlap."""
    prog = program({"a": 1, "b": 1}, [[("launch", 0, 0), ("launch", 1, 1)]])
    with machine(prog, 2, meeting([("a", 0), ("b", 0)])) as m:
        run = m.run(NoValues(), PATIENCE)
    (a_start, a_end), (b_start, b_end) = run.spans(0)
    assert max(a_start, b_start) < min(a_end, b_end) <= run.latency


def test_kernels_of_one_stream_do_not():
    prog = program({"a": 1, "b": 1}, [[("launch", 0, 0), ("launch", 0, 1)]])
    with machine(prog, 2) as m:
        for _ in range(20):
            (_, a_end), (b_start, _) = m.run(NoValues(), PATIENCE).spans(0)
            assert a_end <= b_start


def test_a_kernel_takes_only_what_the_one_before_it_leaves():
    """a has three blocks, two workers: a0 runs beside a1, and b beside a2; were b served earlier, nobody would meet."""
    prog = program({"a": 3, "b": 1}, [[("launch", 0, 0), ("launch", 1, 1)]], execution="graph")
    with machine(prog, 2, meeting([("a", 0), ("a", 1)], [("a", 2), ("b", 0)])) as m:
        m.run(NoValues(), PATIENCE)


def test_all_blocks_of_the_first_kernel_are_taken_first():
    prog = program({"a": 3, "b": 2}, [[("launch", 0, 0), ("launch", 1, 1)]], execution="graph")
    assert order_of(prog) == ["a", "a", "a", "b", "b"]


def test_priority_goes_before_launch_order():
    prog = program({"a": 2, "b": 2}, [[("launch", 0, 0), ("launch", 1, 1)]], execution="graph", priority=[0, -1])
    assert order_of(prog) == ["b", "b", "a", "a"]


def test_higher_priority_takes_the_next_block():
    """b is issued while the first of a's two blocks runs: it goes before the second.

    The host waits for g, on another device, which ends once a has begun; a's first block ends once b has been issued.
    """
    rows = [("launch", 0, 0), ("launch", 0, 1, 1), ("record", 0, 0, 1), ("sync", -1, 0, 1), ("launch", 1, 2),
            ("record", 1, 1)]  # fmt: skip
    prog = program({"a": 2, "g": 1, "b": 1}, [rows], n_events=2, priority=[0, 0, -1], devices=("gpu0", "gpu1"))
    log, begun = [], threading.Event()

    def block(name, number):
        if name == "g":
            begun.wait(PATIENCE)
            return
        log.append(f"{name}{number}")
        begun.set()
        while log == ["a0"] and not m._run.streams.issued[1]:  # recorded behind the launch of b
            time.sleep(0.001)

    with machine(prog, 1, block) as m:
        m.run(NoValues(), PATIENCE)
    assert log == ["a0", "b0", "a1"]


def test_a_stream_waits_for_an_event_of_another():
    """c waits for a, b does not: b is ready with a, so it comes before c, which is launched earlier."""
    rows = [("launch", 0, 0), ("record", 0, 0), ("wait", 1, 0), ("launch", 1, 2), ("launch", 2, 1)]
    prog = program({"a": 1, "b": 1, "c": 1}, [rows], execution="graph", n_events=1)
    assert order_of(prog) == ["a", "b", "c"]
    prog = program({"a": 1, "b": 1, "c": 1}, [rows], n_events=1)
    for _ in range(5):
        log = order_of(prog, sms=2)
        assert log.index("a") < log.index("c")


@pytest.mark.parametrize(("second", "argument"), [("barrier", -1), ("sync", 0)])
def test_a_host_waits_until_its_device_is_done(second, argument):
    """b is not issued before a is over, though its stream is empty and a second worker idle."""
    rows = [("launch", 0, 0), ("record", 0, 0), (second, -1, argument), ("launch", 1, 1)]
    prog = program({"a": 3, "b": 1}, [rows], n_events=1)
    with machine(prog, 2) as m:
        for _ in range(10):
            (_, a_end), (b_start, _) = m.run(NoValues(), PATIENCE).spans(0)
            assert a_end <= b_start


def test_a_host_waits_for_the_record_of_another_host():
    """The thread of gpu1 reaches its wait for an event that gpu0 records only after its barrier."""
    first = [("launch", 0, 0), ("barrier", -1, -1), ("launch", 0, 1), ("record", 0, 0)]
    second = [("wait", 0, 0, 1), ("launch", 0, 2, 1)]
    prog = program({"a": 1, "b": 1, "c": 1}, [first, second], n_events=1, devices=("gpu0", "gpu1"))
    with machine(prog, 1) as m:
        for _ in range(10):
            spans = m.run(NoValues(), PATIENCE).spans(0)
            assert spans[0][1] <= spans[1][0] < spans[1][1] <= spans[2][0]


def test_a_captured_graph_runs_again_and_again():
    """A diamond a -> (b, c) -> d on two streams: b and c meet each time."""
    rows = [
        ("launch", 0, 0), ("record", 0, 0), ("wait", 1, 0), ("launch", 0, 1), ("launch", 1, 2), ("record", 1, 1),
        ("wait", 0, 1), ("launch", 0, 3),
    ]  # fmt: skip
    prog = program({"a": 1, "b": 1, "c": 1, "d": 1}, [rows], execution="graph", n_events=2)
    meet = meeting([("b", 0), ("c", 0)])
    with machine(prog, 2, lambda name, number: name in "bc" and meet(name, number)) as m:
        for _ in range(10):
            a, b, c, d = m.run(NoValues(), PATIENCE).spans(0)
            assert a[1] <= min(b[0], c[0]) < max(b[1], c[1]) <= d[0]


def test_an_event_that_nobody_records_is_a_deadlock():
    rows = [("launch", 0, 0), ("wait", 1, 0), ("launch", 1, 1)]
    prog = program({"a": 1, "b": 1}, [rows], n_events=1)
    with machine(prog, 2) as m, pytest.raises(BackendError, match="'b' on gpu0 for event 0, which nobody records"):
        m.run(NoValues(), PATIENCE)
    prog = program({"a": 1, "b": 1}, [rows], n_events=1, execution="graph")
    with pytest.raises(BackendError, match="nobody records"):
        machine(prog, 2)


def test_hosts_that_wait_for_each_other_are_a_deadlock():
    """Each thread records what the other waits for only behind its own wait."""
    first = [("wait", 0, 1), ("launch", 0, 0), ("record", 0, 0)]
    second = [("wait", 0, 0, 1), ("launch", 0, 1, 1), ("record", 0, 1, 1)]
    prog = program({"a": 1, "b": 1}, [first, second], n_events=2, devices=("gpu0", "gpu1"))
    with machine(prog, 1) as m, pytest.raises(BackendError, match=r"deadlock in 'small': waiting are 'a' on gpu0"):
        m.run(NoValues(), PATIENCE)


def test_a_block_that_does_not_end_is_named():
    end = threading.Event()
    prog = program({"a": 1, "b": 1}, [[("launch", 0, 0), ("launch", 3, 1)]])
    with machine(prog, 1, lambda name, number: name == "b" and end.wait(PATIENCE)) as m:
        with pytest.raises(BackendError, match=r"stopped after 0\.5 s in 'b' of stream 3 of gpu0"):
            m.run(NoValues(), 0.5)
        end.set()


def test_what_a_block_raises_reaches_the_caller():
    def block(name, number):
        raise MemoryError(name)

    prog = program({"a": 1}, [[("launch", 0, 0)]])
    with machine(prog, 2, block) as m, pytest.raises(MemoryError):
        m.run(NoValues(), PATIENCE)


def test_ctrl_c_stops_a_run():
    """In the first of many blocks: the others are not run any more."""
    ran = []

    def block(name, number):
        ran.append(number)
        if number == 0:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            while not m._stopping:
                time.sleep(0.001)

    prog = program({"a": 100}, [[("launch", 0, 0)]])
    with pytest.raises(KeyboardInterrupt), machine(prog, 1, block) as m:
        m.run(NoValues(), PATIENCE)
    assert ran == [0]


def test_threads_that_the_system_does_not_give_are_an_error(monkeypatch):
    """The host is the fourth to start; the three workers before it end."""
    start, started = threading.Thread.start, []

    def counted(thread):
        if len(started) == 3:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", counted)
    prog = program({"a": 1}, [[("launch", 0, 0)]])
    with pytest.raises(BackendError, match="the 4 threads of the device cannot be started: can't"), machine(prog, 3):
        raise AssertionError
    assert len(started) == 3


def test_threads_that_nobody_asked_for_anything_end():
    prog = program({"a": 1}, [[("launch", 0, 0)]])
    before = threading.active_count()
    with machine(prog, 3):
        assert threading.active_count() == before + 4  # three workers and a host
