"""One work on one device: the bytes that it moves, and the plain kernels that most families share."""

from typing import NamedTuple

from simsched.model.graph import DTYPE_NBYTES, Work
from simsched.model.libraries.chip import DRAM_LATENCY, STREAMED, WRITTEN, Chip, count_blocks, parts
from simsched.model.libraries.launch import Launch


class WorkCase(NamedTuple):
    """A work in a number format on a device.

    Parameters
    ----------
    cached
        Part of the work's parameters that is found in L2.
    cold
        Whether nothing at all is found in L2.
    """

    work: Work
    dtype: str
    chip: Chip
    cached: float
    cold: bool

    @property
    def may_use_tf32(self) -> bool:
        """Whether tensor cores may compute the work, which is in fp32, in tf32."""
        return self.dtype == "fp32" and self.work.tf32 and self.chip.tensor("tf32")

    @property
    def width(self) -> int:
        """Bytes of a number."""
        return DTYPE_NBYTES[self.dtype]

    @property
    def nbytes(self) -> float:
        """Bytes that the work reads and writes, wherever they are."""
        return self.work.reads + self.work.weights + self.work.writes

    def part_in_l2(self, read: float, written: float) -> float:
        """Return the part of some bytes of activations, read and written, that is found in L2."""
        if self.cold:
            return 0.0
        return self.chip.part_in_l2(read + WRITTEN * written)

    @property
    def weights_found(self) -> float:
        """Part of the parameters that is found in L2."""
        return 0.0 if self.cold else self.cached

    def traffic(self) -> float:
        """Return the bytes of the work that move from and to DRAM."""
        work = self.work
        moved = (1.0 - self.part_in_l2(work.reads, work.writes)) * (work.reads + work.writes)
        return moved + (1.0 - self.weights_found) * work.weights

    @property
    def miss_share(self) -> float:
        """Part of the activations or of the parameters that is not found in L2, whichever is larger."""
        work = self.work
        return max(1.0 - self.part_in_l2(work.reads, work.writes), 1.0 - self.weights_found if work.weights else 0.0)

    @property
    def latency(self) -> float:
        """Time in us by which the first data come late, as they come from DRAM."""
        return DRAM_LATENCY * self.miss_share

    def streaming(
        self,
        items: float,
        per_block: int,
        threads: int,
        registers: int,
        start: float,
        lane_cycles: float,
        *,
        efficiency: float = STREAMED,
        chain: float = 0.0,
        flops: float = 0.0,
        nbytes: float | None = None,
        traffic: float | None = None,
        shared_memory: int = 0,
    ) -> Launch:
        """Return a kernel whose threads compute one item after the other.

        Parameters
        ----------
        items, per_block
            Items in all, and of a block.
        lane_cycles
            Clock cycles of a lane for each item.
        efficiency
            Part of the bandwidth of DRAM.
        chain
            Clock cycles of a block.
        nbytes, traffic
            Bytes that it moves, and the part of them from and to DRAM; by default the work's.
        """
        chip = self.chip
        block = chip.fitting(threads, registers, shared_memory)
        blocks = count_blocks(max(1, parts(int(items), per_block)))
        waves = parts(parts(blocks, chip.sms), block.held)
        if nbytes is None:
            nbytes = self.nbytes
        if traffic is None:
            traffic = self.traffic()
        return Launch(
            blocks,
            *block[:3],
            efficiency=1.0,
            chain=chain * chip.generation.slowness,
            flops=flops,
            traffic=traffic,
            tensor=False,
            start=start * chip.generation.starting,
            chained=waves * chain * chip.cycle,
            compute=parts(blocks, chip.sms) * min(items, per_block) * lane_cycles / chip.lanes * chip.cycle,
            memory=chip.move_time(nbytes, traffic, efficiency),
            tail=0.0,
        )
