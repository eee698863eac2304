"""Rangeify: the program is split into kernels, whose loops are Ranges.

Takes: CALLIFIED. Gives: KERNEL. `cost` decides which values are stored, `layouts` in which order, `closed_forms` and `elements`
which Reduces need no loop, `split_reduce` which are done in parts.
"""
