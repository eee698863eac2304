"""The optimize pass: schedules of kernels.

Holds: `optimize`, the pass; `schedule`, OptOps and other transforms of a kernel; `heuristics`, hand-written choices; `search`,
timed and random ones. Takes: KERNEL. Gives: SCHEDULED.
"""
