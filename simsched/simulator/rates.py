"""Rates of the kernels on a device, by their loads on its SMs and its DRAM; both engines run this code."""

from math import inf

from simsched.base.jit import native
from simsched.simulator.contention import SATURATED, crowded_load, first_end, fullest, lay_blocks, pressure, set_rate
from simsched.simulator.recording import record_point
from simsched.simulator.state import COHORTS, DeviceTable, LaunchDemand, RecordTable


@native
def share_device(devices: DeviceTable, record: RecordTable, d: int, now: float) -> float:
    """Compute loads, and the rates of all kernels; return the time at which the next blocks end."""
    device = devices.rows[d]
    running = devices.running[d * devices.width :]
    crowd = devices.crowds[d]
    n = device.n_running
    crowd.below = crowd.below_warps = crowd.top_load = crowd.top_warps = 0.0
    crowd.tops = 0
    without_grid = warps = 0.0
    compute = memory = blocks = 0
    for i in range(n):
        work = devices.work[running[i]]
        sm = devices.shares[i]
        launch = devices.launches[work.row]
        resident = work.resident
        sm.load = resident * launch.sm_share
        sm.sensitivity = launch.alpha
        if launch.blocks:
            lay_blocks(crowd, work, launch.sm_share, launch.warps)
            sm.load /= device.sms
            warps += resident * launch.warps
            blocks += resident
        else:
            without_grid += launch.sm_share
        if resident:
            compute += launch.kind == 0
            memory += launch.kind == 1
    crowd.below += without_grid
    sm_load = crowd.below + crowd.top_load / device.sms
    if sm_load > 1.0:
        pressed = pressure(n, devices.shares) / sm_load
    else:
        pressed = 1.0
    issued = 0.0
    for i in range(n):
        work = devices.work[running[i]]
        launch = devices.launches[work.row]
        load = sm_load
        if launch.blocks and work.resident:
            load = crowded_load(crowd, work, launch.sm_share, launch.warps)
        work.slowed = max(1.0, launch.alpha * (load * pressed))
        if devices.n_partitions > 0 and devices.work[running[i]].rooms >= 0:
            work.slowed = max(1.0, launch.alpha * _load_on_partition(devices, d, running[i]))
        issued += devices.shares[i].load / work.slowed
    # Loads of the fullest SMs are estimates: all kernels together issue no more than the SMs can.
    if issued > SATURATED:
        excess = issued
    else:
        excess = 1.0
    dram_load = device.copy_load
    for i in range(n):  # contention for issue slots lowers the load of DRAM
        work = devices.work[running[i]]
        dram = devices.shares[i]
        launch = devices.launches[work.row]
        if not is_unslowed(launch):
            work.slowed *= excess
        dram.load = work.resident * work.dram_share / work.slowed
        dram.sensitivity = launch.beta / work.slowed
        dram_load += dram.load
    dram_pressure = dram_load
    if dram_load > 1.0:
        devices.shares[n].load = device.copy_load
        devices.shares[n].sensitivity = 0.0
        dram_pressure = pressure(n + 1, devices.shares)
    earliest = inf
    for i in range(n):
        work = devices.work[running[i]]
        launch = devices.launches[work.row]
        rate = 0.0  # a collective, or no block is resident: no progress
        if work.resident and launch.meeting < 0:
            stretch = max(work.slowed, launch.beta * dram_pressure)
            if launch.kind >= 0:
                stretch *= 1.0 + _penalty(devices, d, launch.kind, compute, memory)
            rate = 1.0 / (work.unit * stretch)
        set_rate(work, now, rate)
        earliest = min(earliest, first_end(work, devices.cohorts[COHORTS * running[i] :]))
    if record.active:
        record_point(
            record,
            device,
            d,
            now,
            sm_load,
            dram_load,
            warps,
            min(float(device.sms), blocks + without_grid * device.sms),
        )
    return earliest


@native
def _load_on_partition(devices: DeviceTable, d: int, lane: int) -> float:
    """Return the load of the fullest SM of a partition: its kernel's, and the load of kernels without partitions there.

    Their blocks lie on SMs outside of partitions until these are as full, and then on all alike.
    """
    device = devices.rows[d]
    running = devices.running[d * devices.width :]
    work = devices.work[lane]
    launch = devices.launches[work.row]
    outside = device.sms
    blocks = 0
    spread = whole = 0.0
    for i in range(device.n_running):
        other = devices.work[running[i]]
        beside = devices.launches[other.row]
        if devices.work[running[i]].rooms >= 0:
            outside -= other.sms
        elif beside.blocks:
            blocks += other.resident
            spread += beside.sm_share * other.resident
        else:
            whole += beside.sm_share
    if launch.blocks == 0:
        return launch.sm_share * float(device.sms) / float(work.sms) + whole + spread / device.sms
    load = launch.sm_share * fullest(work, work.sms) + whole
    outside *= -(-work.resident // work.sms)
    if blocks > outside:
        load += spread / device.sms * (1.0 - float(outside) / float(blocks))
    return load


@native
def is_unslowed(launch: LaunchDemand) -> bool:
    """Return whether the blocks of a launch only wait for links: nothing on the device slows them."""
    return launch.alpha == 0.0 and launch.beta == 0.0


@native
def _penalty(devices: DeviceTable, d: int, kind: int, compute: int, memory: int) -> float:
    """Return the largest interference of the kernels beside a kernel of class `kind`, 0 compute, 1 memory."""
    worst = 0.0
    if compute > (kind == 0):
        worst = max(worst, devices.interference[4 * d + 2 * kind])
    if memory > (kind == 1):
        worst = max(worst, devices.interference[4 * d + 2 * kind + 1])
    return worst
