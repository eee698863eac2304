"""The vector machine: the loops of a kernel as axes of NumPy arrays.

It gives up where order might matter, and the lane machine runs the kernel instead.
"""
