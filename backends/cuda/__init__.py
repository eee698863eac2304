"""CUDA C kernels: nvrtc compiles them, the driver runs them on a GPU, and a shim runs the same text on the processor."""
