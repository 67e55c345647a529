"""The compiled engine: the model of `reference` with the same results, in machine code.

Processes have numbers (`ClockTable`). The state of a host or a lane is the place at which the process of the reference
waits. Each module has one kind of process: `hosts`, `lanes`, and `dispatchers` of devices and links.

A host runs ahead of the clock: the times at which it issues depend only on its earlier instructions and on other
hosts, so it issues at once and stops only where it has to wait for a device. Where several threads act on one device,
the order between them matters: then each takes one step in an instant, as in the reference.
"""

from typing import Final

from simsched.base.jit import native, piece
from simsched.simulator.clock import COMPLETE, RELEASE, go_on, open_instant, set_timer
from simsched.simulator.dispatchers import dispatch, dispatch_later, end_cohorts, end_collective, share_links_later
from simsched.simulator.hosts import run_host
from simsched.simulator.lanes import run_lane
from simsched.simulator.links import begin_exchange, end_due_flows, share_flows, take_loads
from simsched.simulator.reset import reset
from simsched.simulator.state import FULL, LAUNCH_OVER, NEW, OVER, PHASES, RUNNING, STUCK, ClockTable, State

BUDGET: Final = 2**16
"""Events after which a run returns, so that it handles an interruption by the user."""
MOST_POINTS: Final = 64
"""Most points of a load curve that an event adds: a kernel that was alone on the device adds one for each wave."""


@piece("simulator")
def run_samples(run: State) -> None:
    """Run the samples until `BUDGET` events are over or points have no room; a further call continues them."""
    if run.status == NEW:
        reset(run)
    run.status = RUNNING
    left = BUDGET
    while run.status == RUNNING:
        phase = 0
        while phase < PHASES and run.clock.queues[phase] < 0:
            phase += 1
        if phase == PHASES:
            if not open_instant(run.clock):
                _end(run)
        elif left == 0:
            return
        elif run.record.active and run.record.n_points + MOST_POINTS > run.record.point_room:
            run.status = FULL
        else:
            left -= 1
            _process(run, phase)


@native
def _process(run: State, phase: int) -> None:
    """Continue the first process in the queue of a phase."""
    clock = run.clock
    process = _take_first(clock, phase)
    if process < clock.first_host:
        if phase == COMPLETE and run.lanes.rows[process].state == LAUNCH_OVER:
            go_on(clock, RELEASE, process)
        else:
            run_lane(run, process)
    elif process < clock.first_timer:
        run_host(run, process - clock.first_host)
    elif process < clock.first_timer + run.devices.n:
        end_cohorts(run, process - clock.first_timer)
    elif process < clock.first_dispatcher:
        _end_flows(run)
    elif process < clock.link_sharing:
        dispatch(run, process - clock.first_dispatcher)
    elif process == clock.link_sharing:
        _share_links(run)
    elif phase == COMPLETE:
        end_collective(run, process - clock.first_collective)
    else:
        begin_exchange(run.links, run.devices, process - clock.first_collective, clock.now)
        share_links_later(clock, run.links)


@native
def _take_first(clock: ClockTable, phase: int) -> int:
    """Remove the first process of a phase from its queue, a ring whose last process is known, and return it."""
    last = clock.queues[phase]
    first = clock.next[last]
    clock.next[last] = clock.next[first]
    if first == last:
        clock.queues[phase] = -1
    return first


@native
def _end_flows(run: State) -> None:
    """Continue the lanes and the collectives whose flows are complete."""
    links = run.links
    for k in range(end_due_flows(links, run.devices, run.collectives, run.clock.now)):
        number = links.results[k]
        if number < links.first_collective:
            go_on(run.clock, RELEASE, number)
        else:
            end_collective(run, number - links.first_collective)
    share_links_later(run.clock, links)


@native
def _share_links(run: State) -> None:
    """Compute the rates of flows and the DRAM loads of their ends, and set the timer of links."""
    clock = run.clock
    links = run.links
    devices = run.devices
    links.sharing = 0
    earliest = share_flows(links, devices, run.collectives, clock.now)
    set_timer(clock, devices.n, max(earliest, clock.now))
    for k in range(take_loads(links, devices)):
        dispatch_later(clock, devices, links.results[k])


@native
def _end(run: State) -> None:
    """End a sample without further events."""
    for t in range(run.hosts.n):
        if run.hosts.rows[t].at < run.hosts.thread_ptr[t + 1]:
            run.status = STUCK
    for i in range(run.lanes.n):
        if run.lanes.rows[i].head < run.lanes.rows[i].tail:
            run.status = STUCK
    if run.status == RUNNING:
        samples = run.samples
        samples.makespans[samples.at] = run.makespan
        samples.at += 1
        if samples.at < samples.n:
            reset(run)
        else:
            run.status = OVER
