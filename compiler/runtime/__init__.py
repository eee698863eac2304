"""Compiled programs at run time: what a run needs (`frame`), what its arguments have to be, and programs as callables on arrays.

Takes: a PROGRAM graph and a target. Gives: a callable on NumPy arrays.
"""
