"""Reference calls of Tensor methods: arguments, and what the docstring and the rulings promise for them.

Takes: choices. Gives: a `MethodCall` per draw, whose answer NumPy computes. `answers` holds exact answers and estimates with a
derived error. `drawing` draws arrays, shapes and axes. The other modules hold the rows of the table in
`uops.fuzz.generate.methods.references`, by the part of the front end. No module reads how a method is implemented.
"""
