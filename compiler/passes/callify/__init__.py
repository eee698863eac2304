"""Conversion of the tensor graph to one Call of a Sink of Stores.

Takes: TENSOR. Gives: CALLIFIED. `hazards` inserts copies where a value would be read too late. `relax` is fast-math: it applies
rules that hold over the real numbers.
"""
