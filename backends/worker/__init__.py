"""Backends in processes of their own, so that a crash, a hang or a runaway allocation is a result.

`client` starts processes and sends them cases; `serve` runs in one; `frames` is the encoding of all that crosses between them.
`patience` decides how long to wait. `guard` places memory between pages whose access ends the process.
"""
