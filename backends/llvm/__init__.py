"""The embedded default backend: SELECTED kernels through LLVM to the machine this process runs on."""
