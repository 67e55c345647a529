"""The meaning of a `Program`, once for all backends that issue programs to a device.

- `lanes`, `feeds`, `issue`: streams, where values come from, and the order in which host threads issue.
- `capture`, `ordering`, `nodes`: a captured graph whose nodes get a program's order.
- `driver`, `packed`, `packing`: the same calls without the interpreter.
"""
