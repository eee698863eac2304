"""Validation of the values of arrays: what each kernel of a launch must store, by the program that it was split from.

Takes: a callified program, the launch of its kernels, and which value each intermediate Buffer is said to hold. Gives: a verdict
per kernel. `elements` states an element of an array as an expression of scalars; `definitions` makes the body of such expressions
that a kernel must equal, and compares the two by their fingerprints. Neither uses anything of `compiler.passes.rangeify`.
"""
