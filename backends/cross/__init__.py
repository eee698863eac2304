"""LLVM kernels for other processors than this one, and the engines that run them: qemu-user, Unicorn and wasmtime.

Takes: LINEAR kernels. Gives: kernels that run in an engine, on copies of their arguments. `processors` is the table of what may be
compiled for; a new processor of the LLVM family is an entry of it.
"""
