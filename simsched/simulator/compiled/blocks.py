"""The block scheduler of the compiled engine."""

from typing import Any

from simsched.simulator.compiled.contention import (
    is_closer,
    same_due,
    waves_over,
    whole_cycles,
)
from simsched.simulator.compiled.layout import COHORTS
from simsched.simulator.compiled.tables import (
    cohort_at,
    compiled,
    device_at,
    free_at,
    kernel_at,
    launch_at,
    queued_at,
    running_at,
)
from simsched.simulator.contention import MAX_COHORTS
from simsched.simulator.gpu import SAME_PLACE
from simsched.units import TIE


@compiled
def enqueue(s: Any, d: int, lane: int) -> None:
    """Put a kernel among those with blocks to issue, by priority, arrival, place in the program."""
    device, base = device_at(s, d), d * s.width
    i = device.n_queue
    while i > 0 and _before(s, lane, queued_at(s, base + i - 1).v):
        queued_at(s, base + i).v = queued_at(s, base + i - 1).v
        i -= 1
    queued_at(s, base + i).v = lane
    device.n_queue += 1


@compiled
def _before(s: Any, a: int, b: int) -> bool:
    """Return whether the kernel of lane a is dispatched before that of lane b: by priority, arrival, place."""
    mine, theirs = kernel_at(s, a), kernel_at(s, b)
    priority = launch_at(s, mine.row).priority - launch_at(s, theirs.row).priority
    if priority != 0:
        return bool(priority < 0)
    if mine.arrival != theirs.arrival:
        return bool(mine.arrival < theirs.arrival)
    return bool(mine.place < theirs.place)


@compiled
def start_running(s: Any, d: int, lane: int) -> None:
    """Put a kernel among those that run, by row."""
    device, base, row = device_at(s, d), d * s.width, kernel_at(s, lane).row
    i = device.n_running
    while i > 0 and kernel_at(s, running_at(s, base + i - 1).v).row > row:
        running_at(s, base + i).v = running_at(s, base + i - 1).v
        i -= 1
    running_at(s, base + i).v = lane
    device.n_running += 1
    if launch_at(s, row).blocks:
        device.n_resident += 1


@compiled
def issue_blocks(s: Any, d: int) -> None:
    """Let the head of the queue issue what fits; while it has blocks left, nothing behind it is looked at."""
    device, base = device_at(s, d), d * s.width
    while True:
        full = device.n_resident >= device.resident_kernels
        head, following = -1, -1
        for i in range(device.n_queue):
            lane = queued_at(s, base + i).v
            if not full or kernel_at(s, lane).start >= 0:
                if head < 0:
                    head = lane
                else:
                    following = lane
                    break
        if head < 0:
            return
        if device.freed and kernel_at(s, head).start >= 0 and following >= 0:
            device.freed = 0
            _interleave(s, d, head, following)
        _issue(s, d, head, kernel_at(s, head).unissued)
        if kernel_at(s, head).unissued:
            return
        _leave_queue(s, d, head)


@compiled
def _leave_queue(s: Any, d: int, lane: int) -> None:
    device, base = device_at(s, d), d * s.width
    i = 0
    while queued_at(s, base + i).v != lane:
        i += 1
    device.n_queue -= 1
    while i < device.n_queue:
        queued_at(s, base + i).v = queued_at(s, base + i + 1).v
        i += 1


@compiled
def _interleave(s: Any, d: int, head: int, following: int) -> None:
    slots = _fits(s, d, head)
    given = int(device_at(s, d).interleave * slots + TIE)
    rows = kernel_at(s, head).row, kernel_at(s, following).row
    if given and launch_at(s, rows[1]).priority == launch_at(s, rows[0]).priority:
        _issue(s, d, head, slots - given)
        _issue(s, d, following, kernel_at(s, following).unissued)
        if not kernel_at(s, following).unissued:
            _leave_queue(s, d, following)


@compiled
def _fits(s: Any, d: int, lane: int) -> int:
    kernel = kernel_at(s, lane)
    launch = launch_at(s, kernel.row)
    count = min(launch.residency - kernel.resident, free_at(s, 4 * d + 1).v)
    if launch.warps:
        count = min(count, free_at(s, 4 * d).v // launch.warps)
    if launch.registers:
        count = min(count, free_at(s, 4 * d + 2).v // launch.registers)
    if launch.shared_memory:
        count = min(count, free_at(s, 4 * d + 3).v // launch.shared_memory)
    return int(count)


@compiled
def _take(s: Any, d: int, launch: Any, count: int) -> None:
    free_at(s, 4 * d).v -= count * launch.warps
    free_at(s, 4 * d + 1).v -= count
    free_at(s, 4 * d + 2).v -= count * launch.registers
    free_at(s, 4 * d + 3).v -= count * launch.shared_memory


@compiled
def _issue(s: Any, d: int, lane: int, most: int) -> None:
    kernel = kernel_at(s, lane)
    count = min(most, kernel.unissued, _fits(s, d, lane))
    if count <= 0:
        return
    if kernel.start < 0:
        kernel.start = s.now
        start_running(s, d, lane)
    _take(s, d, launch_at(s, kernel.row), count)
    kernel.unissued -= count
    kernel.resident += count
    _add_cohort(s, lane, progress_of(kernel, s.now) + 1.0, count)


@compiled
def progress_of(kernel: Any, now: float) -> float:
    """Return how far a kernel is, in blocks' lengths."""
    return float(kernel.progress + (now - kernel.anchor) * kernel.rate)


@compiled
def _add_cohort(s: Any, lane: int, due: float, count: int) -> None:
    kernel, base = kernel_at(s, lane), COHORTS * lane
    n = kernel.n_cohorts
    for j in range(n):
        if same_due(cohort_at(s, base + j).due, due):
            cohort_at(s, base + j).count += count
            return
    cohort_at(s, base + n).due, cohort_at(s, base + n).count = due, count
    n += 1
    _sort_cohorts(s, base, n)
    if n > MAX_COHORTS:
        i = 0
        for j in range(1, n - 1):
            gap = cohort_at(s, base + j + 1).due - cohort_at(s, base + j).due
            if is_closer(gap, cohort_at(s, base + i + 1).due - cohort_at(s, base + i).due):
                i = j
        a, b = cohort_at(s, base + i), cohort_at(s, base + i + 1)
        total = a.count + b.count
        a.due = (a.due * a.count + b.due * b.count) / total
        a.count = total
        n -= 1
        for j in range(i + 1, n):
            after = cohort_at(s, base + j + 1)
            cohort_at(s, base + j).due, cohort_at(s, base + j).count = after.due, after.count
    kernel.n_cohorts = n


@compiled
def _sort_cohorts(s: Any, base: int, n: int) -> None:
    for i in range(1, n):
        due, count = cohort_at(s, base + i).due, cohort_at(s, base + i).count
        j = i
        while j > 0:
            before = cohort_at(s, base + j - 1)
            if before.due < due or (before.due == due and before.count <= count):
                break
            cohort_at(s, base + j).due, cohort_at(s, base + j).count = before.due, before.count
            j -= 1
        cohort_at(s, base + j).due, cohort_at(s, base + j).count = due, count


@compiled
def skip_cycles(s: Any, d: int, lane: int) -> None:
    """Pass over whole refills of the head of the queue: until the last nothing else can change."""
    head = kernel_at(s, lane)
    if not head.resident:
        return
    cycles = whole_cycles(head.unissued, head.resident)
    if cycles:
        head.skipped = cycles
        device_at(s, d).skipping = lane
        head.unissued -= cycles * head.resident
        for j in range(head.n_cohorts):
            cohort_at(s, COHORTS * lane + j).due += cycles


@compiled
def undo_skip(s: Any, d: int, lane: int) -> None:
    """Go back to wave by wave; at most one kernel had waves passed over, and it is still in the queue."""
    kernel, base, now = kernel_at(s, lane), COHORTS * lane, s.now
    cycles = kernel.skipped
    kernel.skipped = 0
    progress = progress_of(kernel, now)
    tolerance = min(SAME_PLACE, TIE * max(1.0, now * kernel.rate))
    left = 0
    for j in range(kernel.n_cohorts):
        due, count = cohort_at(s, base + j).due, cohort_at(s, base + j).count
        waves, ends = waves_over(due, cycles, progress, tolerance)
        pending = cycles - waves + (1 if ends else 0)
        kernel.unissued += pending * count
        if ends:
            free_blocks(s, d, kernel, count)
        else:
            cohort_at(s, base + left).due, cohort_at(s, base + left).count = due - pending, count
            left += 1
    kernel.n_cohorts = left
    _sort_cohorts(s, base, left)


@compiled
def free_blocks(s: Any, d: int, kernel: Any, count: int) -> None:
    """Take blocks that have ended off the device."""
    kernel.resident -= count
    launch = launch_at(s, kernel.row)
    if launch.blocks:
        _take(s, d, launch, -count)
        device_at(s, d).freed = 1
