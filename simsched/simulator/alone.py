"""A kernel that is alone on a device, which the compiled engine runs without events."""

from simsched.base.jit import native
from simsched.simulator.contention import begin_kernel, end_blocks, finish_time, fullest, go_on_alone, is_later
from simsched.simulator.device import enqueue, free_blocks, start_running, take
from simsched.simulator.recording import record_point
from simsched.simulator.state import COHORTS, DeviceTable, RecordTable


@native
def run_alone(devices: DeviceTable, record: RecordTable, d: int, lane: int, until: float) -> None:
    """Compute the progress of a kernel that has been alone on the device, up to a time."""
    work = devices.work[lane]
    cohorts = devices.cohorts[COHORTS * lane :]
    device = devices.rows[d]
    launch = devices.launches[work.row]
    begin_kernel(work, launch.blocks)
    now = end = work.start
    while is_later(until, end):
        now = end
        end_blocks(work, cohorts, now)
        end = go_on_alone(work, cohorts, now, work.residency, work.sms, launch.sm_share, device.block_spread)
        if record.active and record.n_points < record.point_room:
            resident = work.resident
            slowed = max(1.0, launch.sm_share * fullest(work, work.sms))
            record_point(
                record,
                device,
                d,
                now,
                resident * launch.sm_share / device.sms,
                resident * work.dram_share / slowed,
                float(resident * launch.warps),
                float(min(resident, device.sms)),
            )


@native
def join_others(devices: DeviceTable, record: RecordTable, d: int, now: float) -> None:
    """Continue a kernel that has been alone on the device as one among others."""
    device = devices.rows[d]
    lane = devices.rows[d].alone
    work = devices.work[lane]
    cohorts = devices.cohorts[COHORTS * lane :]
    device.alone = -1
    if work.start < 0.0:  # it has just arrived
        enqueue(devices, d, lane)
        return
    run_alone(devices, record, d, lane, now)
    start_running(devices, d, lane)
    take(devices, d, lane, work.resident)
    if work.skipped:
        device.skipping = lane
    if work.unissued:
        enqueue(devices, d, lane)
    is_over = work.unissued == 0 and not is_later(finish_time(work, cohorts[work.n_cohorts - 1].due), now)
    if not work.skipped and not is_over:
        free_blocks(devices, d, lane, end_blocks(work, cohorts, now))
