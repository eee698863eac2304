"""Run backends in processes of their own, so that a crash, a hang or a runaway allocation is data.

`client` starts processes and asks them, `serve` is what runs in one, `frames` is all that crosses between them. `patience` is how
long one waits, and `guard` is memory between pages whose access ends the process.
"""
