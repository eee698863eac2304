"""Kernels inside of a run of the tensor machine: what a Call binds, which memory it may change, and what it does to it."""
