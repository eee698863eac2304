"""The embedded default backend: SELECTED kernels through LLVM to the machine that this process runs on.

`render` writes LLVM IR text of a kernel, with `alu`, `shuffles`, `exponential`, `layout`, `types` and `builder`. `binding` compiles
and links it. `target` and `backend` are the target and the backend, and `host` describes the hardware.

Takes: LINEAR kernels, and frames of programs. Gives: functions of this process.
"""
