"""Networks whose operators are nodes of a fake driver, and their donors."""

from itertools import pairwise
from math import isnan, nan
from types import SimpleNamespace

import numpy as np
from fake_cuda import FakeCuda
from fake_driver import FakeDonorCuda, FakeDriver
from shortened import synths

import simsched as ss
import workloads
from hwbackend.torch.donor import Donor, alone
from simsched.model import OpGraph

OUTPUT, SCRATCH, WORKSPACE = 1 << 20, 2 << 20, 3 << 20  # addresses, by operator or stream


def dag(seed, n_ops=10):
    """A random DAG of synthetic operators."""
    drawn = workloads.random_layered(n_ops=n_ops, n_layers=4, rng=seed)
    names = {name: f"op{i}" for i, name in enumerate(drawn.names)}
    found = synths(names.values(), [(names[edge.src], names[edge.dst]) for edge in drawn.edges])
    return OpGraph(found.operators, found.edges, f"dag {seed}")


class Network:
    """Operators that launch nodes, by number modulo five; the donor of them.

    A kernel; a kernel, a copy and a kernel by way of a workspace that belongs to the stream; a fill and a kernel;
    nothing, whose output is the one that it looks at; a kernel of a library with clusters.
    """

    def __init__(self, graph, seed=0, *, extra=lambda network, op, stream: None):
        self.graph, self._extra = graph, extra
        self.cuda = FakeCuda(1, seed)
        self.cuda.set_device(0)
        self.driver = FakeDriver(self.cuda)
        self.cluster = ss.Cluster.preset("h100")
        ptr, order = graph.incoming
        self.reads = [graph.src[order[a:b]].tolist() for a, b in pairwise(ptr.tolist())]
        self.output = {}
        for op in graph.order_index.tolist():
            looks = op % 5 == 3 and self.reads[op]
            self.output[op] = self.output[self.reads[op][0]] if looks else OUTPUT + 4 * op
        self.api = FakeDonorCuda(self.driver)
        self.donor = Donor(self.api, alone(graph, self.cluster), self.issue)
        self.poison()

    def issue(self, op):
        """Issue an operator to the current stream."""
        driver, stream, kind = self.driver, self.api.current, op % 5
        out, inputs = self.output[op], [self.output[read] for read in self.reads[op]]
        self._extra(self, op, stream)
        if kind == 1:
            work, scratch = WORKSPACE + 4 * stream, SCRATCH + 4 * op
            driver.kernel(stream, mix, (work, op, inputs))
            driver.copy(stream, scratch, work)
            driver.kernel(stream, mix, (out, op, [scratch]))
        elif kind == 2:
            driver.fill(stream, SCRATCH + 4 * op, 3)
            driver.kernel(stream, mix, (out, op, [SCRATCH + 4 * op, *inputs]))
        elif kind == 4:
            cluster = {"CLUSTER_DIMENSION": SimpleNamespace(clusterDim=SimpleNamespace(x=2))}
            driver.kernel(stream, mix, (out, op, inputs), late=True, **cluster)
        elif not (kind == 3 and inputs):
            driver.kernel(stream, mix, (out, op, inputs))

    def poison(self):
        """Forget all that was computed."""
        for address in self.driver.memory:
            self.driver.memory[address] = nan

    def values(self):
        return [self.driver.memory[self.output[op]] for op in range(len(self.graph))]

    def expected(self):
        """What the operators compute one after the other, with their own arithmetic."""
        found = {}
        for op in self.graph.order_index.tolist():
            inputs = [found[read] for read in self.reads[op]]
            if op % 5 == 1:
                found[op] = value(op, [value(op, inputs)])
            elif op % 5 == 2:
                found[op] = value(op, [3, *inputs])
            else:
                found[op] = inputs[0] if op % 5 == 3 and inputs else value(op, inputs)
        return [found[op] for op in range(len(self.graph))]

    def host(self, program, **options):
        return self.donor.host(FakeDonorCuda(self.driver), program, **options)


def value(op, inputs):
    return float(np.float64(1 + op % 7) + sum((k + 1) * x for k, x in enumerate(inputs)) / (1 + len(inputs)))


def mix(memory, arguments):
    """A kernel: a sum of numbers with weights."""
    out, op, inputs = arguments
    memory[out] = value(op, [memory.get(address, nan) for address in inputs])


def equal(got, wanted):
    return not any(map(isnan, got)) and got == wanted
