"""`torch.compile` with streams for Inductor's kernels: Inductor fuses, we order, and a measurement decides.

The files, from what users see to what PyTorch keeps to itself:

- `backend`: the backend of `torch.compile`, and `explain`.
- `options`: its options, checked.
- `report`: the choice and its reasons, as the log has them.
- `contest`: the variants of a graph against each other.
- `measure`: how they are timed and profiled.
- `profiled`: times of kernels alone from a profile, exact or none.
- `choice`: the measured choice among compiled variants, and the file that remembers it.
- `plan`: from kernels to a graph, a schedule, an order with waits, and the memory that it needs. No PyTorch.
- `doors`: the only file that knows private names of PyTorch, for the versions that it names.
- `forked`: streams that a generated wrapper switches between.
"""
