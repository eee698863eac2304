"""Kernels in a run of the tensor machine: the bindings of a Call, the memory that it may change, and its effects on it."""
