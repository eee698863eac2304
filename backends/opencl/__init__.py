"""OpenCL kernels: the choice of a device, its language and memory, the renderer, and Oclgrind's diagnostics.

Takes: LINEAR kernels. Gives: OpenCL C, and launches on a device that conforms.
"""
