"""Kernel split: every program becomes a launch of kernels, whose loops are Ranges.

Takes: CALLIFIED. Gives: KERNEL. `cost` decides which values are stored, `layouts` in which order their elements lie. `closed_forms`
and `elements` remove loops of Reduces, and `split_reduce` splits large ones.
"""
