# ruff: noqa: E501, PT008
"""A CUDA device that is not there: Inductor writes wrapper and Triton kernels, and nothing is compiled or run."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

A100 = {
    "name": "NVIDIA A100-SXM4-80GB", "major": 8, "minor": 0, "multi_processor_count": 108, "warp_size": 32,
    "regs_per_multiprocessor": 65536, "max_threads_per_multi_processor": 2048, "max_threads_per_block": 1024,
    "shared_memory_per_block": 49152, "shared_memory_per_block_optin": 166912,
    "shared_memory_per_multiprocessor": 167936, "total_memory": 80 << 30, "L2_cache_size": 40 << 20,
    "gcnArchName": "", "type": "cuda", "index": 0, "is_integrated": 0, "clock_rate": 1410000,
    "memory_clock_rate": 1593000, "memory_bus_width": 5120, "uuid": "0", "pci_bus_id": 0, "pci_device_id": 0,
}  # fmt: skip


class WrapperWritten(BaseException):
    """Ends a compilation once its wrapper is written; no handler of Inductor takes it for a failure."""


@contextmanager
def fake_gpu() -> Iterator[FakeTensorMode]:
    """Have Inductor believe in an A100, and yield the mode that its tensors need."""
    import triton
    from torch._dynamo import device_interface
    from torch._inductor import config
    from torch._inductor.fx_passes import joint_graph, post_grad

    properties = SimpleNamespace(**A100)
    worker = device_interface.CudaInterface.Worker
    target = triton.backends.compiler.GPUTarget("cuda", 80, 32)
    driver = SimpleNamespace(
        get_current_target=lambda: target,
        get_current_device=lambda: 0,
        utils=SimpleNamespace(get_device_properties=lambda _: {"max_shared_mem": 166912}),
    )
    answers = {
        "torch.cuda.is_available": True, "torch.cuda.device_count": 1, "torch.cuda.current_device": 0,
        "torch.cuda.get_device_capability": (8, 0), "torch.cuda.get_device_properties": properties,
        "torch.cuda.get_device_name": properties.name, "torch.cuda.is_tf32_supported": True,
        "torch.cuda.is_bf16_supported": True, "torch.cuda.is_initialized": False, "torch.cuda.synchronize": None,
        "torch.cuda.mem_get_info": (80 << 30, 80 << 30), "torch.cuda._lazy_init": None,
        "torch.cuda.get_rng_state": torch.zeros(16, dtype=torch.uint8),
        "torch.cuda.set_rng_state": None,
        "torch.utils._triton.has_triton": True, "torch._inductor.scheduler.has_triton": True,
        "torch._inductor.compile_fx.has_triton": True, "torch._inductor.compile_fx._warn_tf32_disabled": None,
        "torch.utils._triton.triton_hash_with_backend": "none",
        "torch._subclasses.fake_tensor.init_gpu_context": None, "torch.cuda._exchange_device": 0, "torch.cuda._maybe_exchange_device": 0,
    }  # fmt: skip
    with ExitStack() as stack:
        # patterns are traced on tensors that exist, before there is a GPU, and as Inductor does it: it asks twice
        joint_graph.lazy_init(torch.device("cpu"))
        post_grad.lazy_init()
        for passes in (joint_graph, post_grad):
            stack.enter_context(mock.patch.object(passes, "lazy_init", lambda *_: None))
        for name, answer in answers.items():
            stack.enter_context(mock.patch(name, lambda *_args, _answer=answer, **_more: _answer))
        for interface, name, answer in (
            (worker, "get_device_properties", properties),
            (worker, "current_device", 0),
            (device_interface.CudaInterface, "get_device_properties", properties),
            (device_interface.CudaInterface, "current_device", 0),
            (device_interface.CudaInterface, "device_count", 1),
            (device_interface.CudaInterface, "is_available", True),
            (device_interface.CudaInterface, "get_compute_capability", 80),
            (device_interface.CudaInterface, "is_triton_capable", True),
        ):
            if hasattr(interface, name):
                answered = staticmethod(lambda *_args, _answer=answer, **_more: _answer)
                stack.enter_context(mock.patch.object(interface, name, answered))
        stack.enter_context(mock.patch.object(triton.runtime.driver, "_active", driver, create=True))
        stack.enter_context(config.patch(compile_threads=1, force_disable_caches=True))
        yield FakeTensorMode(allow_non_fake_inputs=True)


def on_gpu(mode: FakeTensorMode, value: Any) -> Any:
    """Return what stands for a tensor of the CPU on the fake device; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    with torch.no_grad():
        meta = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    return FakeTensor(mode, meta, torch.device("cuda", 0))


def wrapper_of(compile_graph: Callable[[Any, Sequence[Any]], Any], module: Any, *inputs: Any) -> str:
    """Return the wrapper that Inductor writes for a module of the CPU, as if it were on the fake device.

    `compile_graph` is given the graph of dynamo and inputs on the fake device; without gradients.
    """
    from torch._guards import TracingContext, tracing
    from torch._inductor.graph import GraphLowering

    graphs: list[tuple[Any, list[Any]]] = []

    def keep(graph: Any, examples: Sequence[Any]) -> Any:
        graphs.append((graph, list(examples)))
        return graph.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(module, backend=keep)(*inputs)
    ((graph, examples),) = graphs
    texts: list[str] = []
    generate = GraphLowering.codegen

    def written(self: Any) -> Any:
        code = generate(self)[0]
        texts.append(getattr(code, "value", code))
        raise WrapperWritten

    with fake_gpu() as mode, torch.no_grad(), tracing(TracingContext(mode)):
        fakes = [on_gpu(mode, value) for value in examples]
        with mock.patch.object(GraphLowering, "codegen", written), suppress(WrapperWritten):
            compile_graph(graph, fakes)
    (text,) = texts
    return str(text)
