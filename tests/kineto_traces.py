"""Builds traces as torch.profiler writes them, in each of its time formats."""

import json

from workloads import read_kineto_program

SECOND_0 = 1_695_835_535_123_456  # us since 1970 at time 0 of a trace, in September 2023
BASE = 1_695_835_000_000_000_000  # ns since 1970: what `baseTimeNanoseconds` says
CPU = 4321

A100 = {
    "id": 0,
    "name": "NVIDIA A100-SXM4-40GB",
    "totalGlobalMem": 42_298_834_944,
    "computeMajor": 8,
    "computeMinor": 0,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerBlock": 65536,
    "warpSize": 32,
    "sharedMemPerBlock": 49152,
    "numSms": 108,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerBlockOptin": 166_912,
    "sharedMemPerMultiprocessor": 167_936,
}


class KinetoTrace:
    """A trace that grows event by event; times are us from the start of the trace, with up to three decimals.

    `times` is "relative" (us since `baseTimeNanoseconds`, as releases from 2024 write), "decimal" (us
    since 1970 with a decimal point) or "whole" (whole us since 1970; what is behind the point is lost).
    """

    def __init__(self, times="relative", devices=(A100,)):
        self.times = times
        self.header = {"schemaVersion": 1, "deviceProperties": list(devices), "cuda_driver_version": 12040}
        self.header |= {"cuda_runtime_version": 12010, "record_shapes": 1, "displayTimeUnit": "ms"}
        if times == "relative":
            self.header["baseTimeNanoseconds"] = BASE
        self.events = []
        self._n_ids = 0
        self._n_calls = 100

    def _time(self, us):
        ns = SECOND_0 * 1000 + round(us * 1000)
        if self.times == "relative":
            ns -= BASE
        return f"{ns // 1000}" if self.times == "whole" else f"{ns // 1000}.{ns % 1000:03}"

    def event(self, cat, name, start, dur, pid, tid, args, ph="X"):
        duration = f"{int(dur)}" if self.times == "whole" else f"{dur:.3f}"
        self.events.append(
            f'  {{\n    "ph": {json.dumps(ph)}, "cat": {json.dumps(cat)}, "name": {json.dumps(name)}, '
            f'"pid": {json.dumps(pid)}, "tid": {json.dumps(tid)},\n    "ts": {self._time(start)}, "dur": {duration},\n'
            f'    "args": {{\n      {json.dumps(args)[1:-1]}\n    }}\n  }}'
        )

    def op(self, name, start, dur, *, tid=CPU, cat="cpu_op", **args):
        """An operator on the host; returns its External id."""
        self._n_ids += 1
        self.event(cat, name, start, dur, CPU, tid, {"External id": self._n_ids, "Ev Idx": self._n_ids - 1} | args)
        return self._n_ids

    def steps(self, n, name="ProfilerStep#{}"):
        """Mark `n` steps, one every 1000 us; yield the number of each and its start."""
        for k in range(n):
            self.mark(name.format(k), 1000.0 * k, 900.0)
            yield k, 1000.0 * k

    def mark(self, name, start, dur, *, tid=CPU):
        """An annotation."""
        return self.op(name, start, dur, tid=tid, cat="user_annotation")

    def call(self, name, start, dur=5.0, *, external=0, cat="cuda_runtime", tid=CPU):
        """A call of the runtime or the driver; returns its correlation id."""
        self._n_calls += 1
        args = {"cbid": 211, "correlation": self._n_calls} | ({"External id": external} if external else {})
        self.event(cat, name, start, dur, CPU, tid, args)
        self.flow("s", start, CPU, tid)
        return self._n_calls

    def flow(self, ph, start, pid, tid):
        self.events.append(
            f'  {{\n    "ph": "{ph}", "id": {self._n_calls}, "pid": {pid}, "tid": {tid}, "ts": {self._time(start)},\n'
            f'    "cat": "ac2g", "name": "ac2g"\n  }}'
        )

    def kernel(
        self,
        correlation,
        start,
        dur,
        name="gemm",
        *,
        stream=7,
        device=0,
        external=0,
        grid=(108, 1, 1),
        block=(128, 1, 1),
        registers=32,
        shared=0,
        **more,
    ):
        args = {"External id": external} if external else {}
        args |= {"queued": 0, "device": device, "context": 1, "stream": stream, "correlation": correlation}
        args |= {"registers per thread": registers, "shared memory": shared, "blocks per SM": 1.0}
        args |= {"warps per SM": 4.0, "grid": list(grid), "block": list(block), "est. achieved occupancy %": 6}
        self.event("kernel", name, start, dur, device, stream, args | more)
        self.flow("f", start, device, stream)

    def copy(
        self,
        correlation,
        start,
        dur,
        *,
        cat="gpu_memcpy",
        name="Memcpy HtoD (Pinned -> Device)",
        stream=7,
        nbytes=4096,
        device=0,
        external=0,
        **more,
    ):
        args = {"External id": external} if external else {}
        args |= {"device": device, "context": 1, "stream": stream, "correlation": correlation, "bytes": nbytes}
        self.event(cat, name, start, dur, device, stream, args | {"memory bandwidth (GB/s)": "N/A"} | more)

    def launched(self, op, start, dur, kernels, *, inner=None, api="cudaLaunchKernel", cat="cuda_runtime", tid=CPU):
        """An operator and another inside it that launches kernels: (start, duration, keywords) each."""
        outer = self.op(op, start, dur, tid=tid)
        external = self.op(inner, start + 1, dur - 2, tid=tid) if inner else outer
        for k, (begin, length, keywords) in enumerate(kernels):
            call = self.call(api, start + 2 + k, 0.5, external=external, cat=cat, tid=tid)
            self.kernel(call, begin, length, external=external, **keywords)

    def text(self):
        head = json.dumps(self.header)[:-1]
        return head + ',\n "traceEvents": [\n' + ",\n".join(self.events) + '\n  ],"traceName": "trace.json" }\n'

    def write(self, path):
        path.write_text(self.text(), encoding="utf-8")
        return path


class LaunchTrace(KinetoTrace):
    """A trace in a file, each of whose calls launches one kernel."""

    def __init__(self, path, **options):
        super().__init__(**options)
        self.path = path

    def launch(
        self, ts, dur, start, length, *, stream=7, tid=CPU, name="k", call="cudaLaunchKernel", grid=64, threads=256
    ):
        correlation = self.call(call, ts, dur, tid=tid)
        self.kernel(correlation, start, length, name, stream=stream, grid=(grid, 1, 1), block=(threads, 1, 1))
        return correlation

    def program(self, **options):
        return read_kineto_program(self.write(self.path), **options)


def small_network(times="relative", n_steps=3, *, annotated=False, warm=0):
    """Steps of 1000 us each: conv (two kernels, 4 + 20 us), relu (3 us), flatten (none), fc (10 + k us in step k).

    The first `warm` steps autotune: their convolution launches one kernel of 90 us.
    """
    trace = KinetoTrace(times)
    for k in range(n_steps):
        t = 1000.0 * k
        trace.mark(f"ProfilerStep#{k + 2}", t, 900.0)
        if annotated:
            for name, start in (("conv1", 5.0), ("relu", 105.0), ("flatten", 155.0), ("fc", 205.0)):
                trace.mark(name, t + start, 45.0)
        kernels = [
            (t + 300, 4.0, {"name": "nchwToNhwc", "grid": (64, 2, 1)}),
            (t + 310, 20.0, {"name": "xmma_gemm", "registers": 128, "shared": 67_584}),
        ]
        if k < warm:
            kernels = [(t + 300, 90.0, {"name": "slow_gemm"})]
        trace.launched("aten::conv2d", t + 10, 35.0, kernels, inner="aten::cudnn_convolution")
        trace.launched(
            "aten::relu",
            t + 110,
            30.0,
            [(t + 340, 3.0, {"name": "clamp", "grid": (54, 1, 1)})],
            inner="aten::clamp_min",
            api="cudaLaunchKernelExC",
        )
        trace.op("aten::flatten", t + 160, 20.0)
        trace.launched("aten::linear", t + 210, 30.0, [(t + 350, 10.0 + k, {"name": "sgemm"})], inner="aten::addmm")
    return trace


def forked(node_ids):
    """Two steps, in each one launch of a graph: a fork of two branches whose order in time changes between them."""
    trace = KinetoTrace()
    for k, t in trace.steps(2):
        call = trace.call("cudaGraphLaunch", t + 10, 1240.0)
        nodes = (300, "stem", 7), (320 + 5 * k, "left", 7), (322 - k, "right", 13), (360, "join", 7)
        for node, (start, name, stream) in enumerate(nodes):
            more = {"graph id": 5, "graph node id": (5 << 32) + node} if node_ids else {}
            trace.kernel(call, t + start, 1.0 + node + k, name, stream=stream, **more)
    return trace


def collective(name="allreduce", n_in=1000, n_out=None, dtype="Float", size=8, **more):
    """The arguments of a collective as PyTorch writes them; as many elements come out as go in unless given."""
    if n_out is None:
        n_out = n_in
    args = {"Collective name": name, "In msg nelems": n_in, "Out msg nelems": n_out, "dtype": dtype}
    return args | {"Group size": size, "Process Group Name": "0"} | more


class CollectiveTrace(KinetoTrace):
    """A trace whose host, all on one stream, calls for a kernel every 2 us; kernels follow each other from 5 us on.

    Parameters
    ----------
    kernels
        Name, duration in us, and further arguments of each.
    """

    def __init__(self, kernels, **options):
        super().__init__(**options)
        start = 5.0
        for name, length, args in kernels:
            call = self.call("cudaLaunchKernel", 2.0 * self._n_calls - 200.0, 1.0)
            self.kernel(call, start, length, name, grid=(8, 1, 1), **args)
            start += length + 1.0
