"""The functions of `contention`, compiled as they stand: the reference runs the same text."""

from numba.extending import register_jitable

from simsched.simulator import contention
from simsched.simulator.compiled_tables import compiled

register_jitable(contention.end_of_instant)  # `is_over` calls it
end_of_instant = compiled(contention.end_of_instant)
finish_time = compiled(contention.finish_time)
is_over = compiled(contention.is_over)
max_min_rates = compiled(contention.max_min_rates)
slowdown = compiled(contention.slowdown)
waves_over = compiled(contention.waves_over)
whole_cycles = compiled(contention.whole_cycles)
