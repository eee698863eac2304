"""Generators of well-typed programs, and of schedules for their kernels.

Takes: a seed, or choices of hypothesis. Gives: a program with inputs; case k of a seed is always the same. `kinds` lists what can
be drawn.
"""
