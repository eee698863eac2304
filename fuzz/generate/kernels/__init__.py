"""Generators of kernels.

`scheduled` gives launches of SCHEDULED kernels, and `written_by_hand` gives Calls of kernels in TENSOR programs.
"""
