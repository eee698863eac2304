"""OpenCL kernels on PoCL: the renderer, the mapping of loops to the NDRange, and the device."""
