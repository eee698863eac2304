"""Kernels as C: TinyCC in this process, for speed of compiling; gcc or clang where they are installed, for speed of code."""
