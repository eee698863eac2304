"""Kernels as OpenCL C, on PoCL: workgroups, local memory and barriers on the processor of this machine."""
