"""Native code of the process itself, shared by every target whose kernels are functions of this process (`HostKernel`).

Takes: a `ProgramFrame`. Gives: a builtin of Python that runs the program. Its threads share the THREAD loops of kernels.

`module` is the entry from Python and `pool` are the threads, both written with `ir`. `table` describes a program to them, and
`sharing` says which loops are worth threads. LLVM compiles the module, whichever compiler has made the kernels.
"""
