"""One kernel that a library launches for a work on a device, and the terms of its time alone."""

from typing import NamedTuple


class Launch(NamedTuple):
    """One kernel chosen for a work on a device.

    Parameters
    ----------
    blocks, threads, registers, shared_memory
        Its launch shape; 0 blocks where its kernels are not known.
    efficiency
        FLOP of the work over FLOP of the padded tiles that it computes, in (0, 1].
    chain
        Clock cycles that a block takes at least, however idle the device is.
    flops
        Its part of the work's FLOP; 0 for kernels that only move data.
    traffic
        Bytes that it moves from and to DRAM; bytes found in L2 do not count.
    tensor
        Whether tensor cores compute it.
    start
        Start and end of the kernel, in us.
    chained
        Time in us of the waves of blocks, each as long as its chain.
    compute
        Time in us by whole tiles and whole blocks on each SM.
    memory
        Time in us by the rates of DRAM and L2.
    tail
        Time in us that nothing hides: filling each wave after the first, preparing a split product.
    """

    blocks: int
    threads: int
    registers: int
    shared_memory: int
    efficiency: float
    chain: float
    flops: float
    traffic: float
    tensor: bool
    start: float
    chained: float
    compute: float
    memory: float
    tail: float

    @property
    def time(self) -> float:
        """Time alone in us: start, the longest of chain, compute and memory, and the tail."""
        return self.start + max(self.chained, self.compute, self.memory) + self.tail


def no_faster(launch: Launch, smaller: Launch) -> Launch:
    """Return a kernel whose terms are no less than a library's kernel has for a smaller work.

    Libraries are faster beyond some sizes, where another kernel begins; a model of them must not promise that.
    """
    return launch._replace(
        chain=max(launch.chain, smaller.chain),
        chained=max(launch.chained, smaller.chained),
        compute=max(launch.compute, smaller.compute),
    )
