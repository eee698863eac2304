"""Generators of well-typed programs, and of schedules for their kernels.

Takes: a seed, or choices of hypothesis. Gives: a program with inputs, the same for the same choices. `kinds` lists the kinds of
programs.
"""
