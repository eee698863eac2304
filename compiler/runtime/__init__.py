"""Compiled programs at run time: a run described as data (`frame`), its arguments, and programs as callables on arrays.

Takes: a PROGRAM graph and a target. Gives: a callable on NumPy arrays.
"""
