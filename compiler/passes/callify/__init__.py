"""Callify: the tensor graph becomes one stateless Call.

Takes: TENSOR. Gives: CALLIFIED. `relax` comes before it where fast-math is asked for; `hazards` copies values that would be
overwritten before they are read.
"""
