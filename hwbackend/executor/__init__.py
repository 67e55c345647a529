"""The meaning of a `Program`, once for all backends that issue programs to a device: lanes, turns, ends, capture."""
