"""Speed of reading a torch.profiler trace, to a profile and to a makespan; the target is 150,000 events a second.

Half a million events of 50 steps, laid out as torch writes them with ``record_shapes``: convolutions of
four operators inside one another and activations of two, each with a call, a kernel and two arrows.
"""

import gc
import json
import time

import pytest

import simsched as ss
from workloads import read_kineto_program
from workloads.formats.kineto import read_kineto

N_STEPS, N_LAYERS = 50, 715
N_EVENTS = N_STEPS * (N_LAYERS * 14 + 1)
SHAPES = (
    '"Concrete Inputs": ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"], '
    '"Input type": ["float", "float", "float", "ScalarList", "ScalarList", "ScalarList", "Scalar"], '
    '"Input Strides": [[192, 64, 8, 1], [27, 9, 3, 1], [1], [], [], [], []], '
    '"Input Dims": [[1, 3, 8, 8], [8, 3, 3, 3], [8], [], [], [], []], '
)
OPERATOR = """  {{
    "ph": "X", "cat": "{}", "name": "{}", "pid": 20045, "tid": 20045,
    "ts": {:.3f}, "dur": {:.3f},
    "args": {{
      "External id": {},"Record function id": 0, {}"Ev Idx": {}
    }}
  }}"""
LAUNCH = """  {{
    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 20045, "tid": 20045,
    "ts": {1:.3f}, "dur": 5.123,
    "args": {{
      "External id": {2}, "cbid": 211, "correlation": {0}
    }}
  }},
  {{
    "ph": "s", "id": {0}, "pid": 20045, "tid": 20045, "ts": {1:.3f},
    "cat": "ac2g", "name": "ac2g"
  }},
  {{
    "ph": "X", "cat": "kernel", "name": "void at::native::{3}<4, at::native::clamp_scalar_kernel>", "pid": 0, "tid": 7,
    "ts": {4:.3f}, "dur": 3.456,
    "args": {{
      "External id": {2}, "queued": 0, "device": 0, "context": 1,
      "stream": 7, "correlation": {0},
      "registers per thread": 32,
      "shared memory": 0,
      "blocks per SM": 3.55,
      "warps per SM": 14.2,
      "grid": [384, 1, 1],
      "block": [128, 1, 1],
      "est. achieved occupancy %": 22
    }}
  }},
  {{
    "ph": "f", "id": {0}, "pid": 0, "tid": 7, "ts": {4:.3f},
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  }}"""
LAYERS = {"gemm": ("conv2d", "convolution", "_convolution", "cudnn_convolution"), "relu": ("relu", "clamp_min")}


def events():
    now, n_ids, n_calls = 4405981529410.0, 0, 0
    for step in range(N_STEPS):
        n_ids += 1
        name = f"ProfilerStep#{step}"
        yield OPERATOR.format("user_annotation", name, now, 200.0 * N_LAYERS - 1, n_ids, "", n_ids)
        for _ in range(N_LAYERS):
            for kernel, names in LAYERS.items():
                for k, name in enumerate(names):
                    n_ids += 1
                    yield OPERATOR.format("cpu_op", f"aten::{name}", now + k, 90.0 - 2 * k, n_ids, SHAPES, n_ids)
                n_calls += 1
                yield LAUNCH.format(n_calls, now + 10, n_ids, kernel, now + 40)
                now += 100


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("kineto") / "trace.json"
    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "baseTimeNanoseconds": 1790857026000000000,\n "traceEvents": [\n')
        file.write(",\n".join(events()))
        file.write('\n  ],"traceName": "trace.json" }\n')
    return path


def test_events_per_second(trace):
    """The best of three, in time of the processor, and how long that is next to `json.loads` on the same text."""
    gc.collect()
    gc.disable()  # which is where `json.loads` would spend as much time again
    start = time.process_time()
    json.loads(trace.read_text())
    decoding = time.process_time() - start
    gc.enable()
    taken = []
    for _ in range(3):
        start = time.process_time()
        profile = read_kineto(trace, skip=0)
        taken.append(time.process_time() - start)
    rate = N_EVENTS / min(taken)
    megabytes = trace.stat().st_size / 1e6
    print(f"{N_EVENTS} events, {megabytes:.0f} MB: {rate:.0f} events/s, {min(taken) / decoding:.2f} x json.loads")
    assert len(profile) == 2 * N_LAYERS
    assert all(op.samples == (3.456,) * N_STEPS for op in profile.operators)


def test_file_to_makespan(trace):
    """71,500 operators; the host decides, so the simulated makespan is the measured one."""
    start = time.process_time()
    program = read_kineto_program(trace, step="all")
    read = time.process_time() - start
    makespan = ss.simulate(program, program.cluster).makespan
    taken = time.process_time() - start
    print(f"{len(program.graph)} operators: read in {read:.1f} s, makespan after {taken:.1f} s")
    assert len(program.graph) == 2 * N_STEPS * N_LAYERS
    assert makespan == pytest.approx(program.measured_makespan, rel=1e-3)
