"""Schedules chosen by hand-written rules, from a description of the machine.

Takes: a `Schedule` and a `Machine`. Gives: the `Schedule` with OptOps applied. `cpu` and `gpu` choose; the other modules know one
kind of kernel each.
"""
