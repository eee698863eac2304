"""Exact arithmetic in integers and fractions, rounded once, for the exact interpreter.

Takes and gives bit patterns and fractions. Nothing here uses a graph, NumPy or the first interpreter. Throughout, (m, e) stands
for m * 2**e, and (r, q) for a rounded number r * 2**q.
"""
