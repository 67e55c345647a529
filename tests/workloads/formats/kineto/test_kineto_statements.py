"""Arguments of collectives that stand on events of the host, joined with the kernels."""

import pytest
from kineto_traces import CPU, KinetoTrace, collective

import simsched as ss
from workloads import read_kineto_program

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
KNOWN = ss.Collective("all_reduce", 4000, 8)


@pytest.fixture
def exchanges(trace, tmp_path):
    """The exchanges of the collectives of a trace, as it is now."""

    def read():
        of = read_kineto_program(trace.write(tmp_path / "trace.json")).of_trace
        return [(one.exchange, one.data.unknown) for one in of.collectives]

    return read


def test_the_host_asks_by_external_id(trace, exchanges):
    """A kernel has the External id of the event, or its call has it, even on another thread."""
    first = trace.op("record_param_comms", 10.0, 30.0, **collective())
    second = trace.op("record_param_comms", 50.0, 30.0, **collective(n_in=2000))
    trace.kernel(trace.call("cudaLaunchKernel", 200.0), 300.0, 50.0, NCCL, external=first)
    trace.kernel(trace.call("cudaLaunchKernelExC", 210.0, external=second, tid=99), 360.0, 50.0, NCCL)
    assert exchanges() == [(KNOWN, ""), (ss.Collective("all_reduce", 8000, 8), "")]


def test_the_host_asks_around_the_call(trace, exchanges):
    """Without ids the innermost event that is open on the thread counts; an annotation is one, too."""
    trace.op("record_param_comms", 10.0, 100.0, **collective(n_in=9))
    trace.op("record_param_comms", 20.0, 30.0, **collective())
    trace.op("nccl:all_reduce", 200.0, 30.0, cat="user_annotation", **collective(n_in=3))
    for start in (30.0, 70.0, 210.0):
        trace.kernel(trace.call("cudaLaunchKernel", start), 300.0 + start, 10.0, NCCL)
    assert [one.bytes for one, _ in exchanges()] == [4000, 36, 12]


@pytest.mark.parametrize(("start", "tid"), [(50.0, CPU), (20.0, 99)])
def test_other_calls_are_not_asked_for(trace, exchanges, start, tid):
    """The call is later, or on another thread."""
    trace.op("record_param_comms", 10.0, 30.0, **collective())
    trace.kernel(trace.call("cudaLaunchKernel", start, tid=tid), 100.0, 50.0, NCCL)
    assert exchanges() == [(None, "the trace does not say what is exchanged")]


def test_ids_of_several_statements_say_nothing(trace, exchanges):
    trace.op("record_param_comms", 10.0, 30.0, **collective() | {"External id": 7})
    trace.op("record_param_comms", 50.0, 30.0, **collective(n_in=2000) | {"External id": 7})
    trace.kernel(trace.call("cudaLaunchKernel", 200.0), 300.0, 50.0, NCCL, external=7)
    assert exchanges() == [(None, "the trace does not say what is exchanged")]


def test_the_kernel_comes_first(trace, exchanges):
    """The host says the rest where both name the same collective."""
    external = trace.op("record_param_comms", 10.0, 30.0, **collective(n_in=7, size=8))
    bare = {"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000}
    other = {"Collective name": "broadcast"}
    for start, args in ((300.0, bare), (360.0, other)):
        trace.kernel(trace.call("cudaLaunchKernel", start - 200), start, 50.0, NCCL, external=external, **args)
    assert exchanges() == [(KNOWN, ""), (None, "broadcast has no model")]


def test_nodes_of_a_captured_graph_are_not_asked_for(trace, exchanges):
    """The graph is launched within an event that asks for a collective; which of its kernels is that is not known."""
    trace.op("record_param_comms", 10.0, 30.0, **collective())
    call = trace.call("cudaGraphLaunch", 20.0)
    for start in (100.0, 200.0):
        trace.kernel(call, start, 50.0, NCCL)
    assert [one for one, _ in exchanges()] == [None, None]


@pytest.mark.parametrize("sequence", [{}, {"Seq": 5}])
def test_kernels_of_one_collective(trace, exchanges, sequence):
    """Two kernels of one sequence number share the bytes, nobody says how; without numbers they are two collectives."""
    external = trace.op("c10d::allreduce_", 10.0, 30.0)
    for start in (100.0, 200.0):
        call = trace.call("cudaLaunchKernel", start - 90)
        trace.kernel(call, start, 50.0, NCCL, external=external, **collective() | sequence)
    if sequence:
        assert exchanges() == [(None, "one collective has several kernels")] * 2
    else:
        assert exchanges() == [(KNOWN, "")] * 2


def test_processes_have_ids_of_their_own(tmp_path):
    """Both ranks of a merged trace use the same External id, for other collectives."""
    trace = KinetoTrace()
    for device, (pid, n_in) in enumerate(((CPU, 1000), (99, 2000))):
        args = {"External id": 1} | collective(n_in=n_in)
        trace.event("cpu_op", "record_param_comms", 10.0, 30.0, pid, pid, args)
        call = {"cbid": 211, "correlation": 5, "External id": 1}
        trace.event("cuda_runtime", "cudaLaunchKernel", 20.0, 5.0, pid, pid, call)
        trace.kernel(5, 100.0, 50.0, NCCL, device=device, **{"Process Group Name": f"of {pid}"})
    of = read_kineto_program(trace.write(tmp_path / "merged.json")).of_trace
    assert (of.ranks, [one.exchange.bytes for one in of.collectives]) == (2, [4000, 8000])
