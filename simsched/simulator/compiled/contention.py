"""The functions of `contention`, compiled as they stand: the reference runs the same text."""

from numba.extending import register_jitable

from simsched import machine_code
from simsched.simulator import contention
from simsched.simulator.compiled.tables import compiled

register_jitable(contention.end_of_instant)  # `is_over` and `is_later` call it
register_jitable(contention.slowdown)  # `solo_units` calls it
end_of_instant = compiled(contention.end_of_instant)
finish_time = compiled(contention.finish_time)
is_closer = compiled(contention.is_closer)
is_later = compiled(contention.is_later)
is_over = compiled(contention.is_over)
max_min_rates = machine_code.compiled(contention.max_min_rates)
same_due = compiled(contention.same_due)
slowdown = compiled(contention.slowdown)
solo_units = compiled(contention.solo_units)
waves_over = machine_code.compiled(contention.waves_over)
whole_cycles = compiled(contention.whole_cycles)
