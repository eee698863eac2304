"""Schedules chosen by hand-written heuristics from a model of the machine.

Takes: a `Schedule` and a `MachineModel`. Gives: the `Schedule` with OptOps applied. `cpu` and `gpu` choose; each of the other
modules handles one kind of kernel.
"""
