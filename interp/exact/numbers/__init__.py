"""Exact arithmetic in integers and fractions, rounded once: what the exact interpreter computes with.

Takes and gives bit patterns and fractions. Nothing here knows a graph, NumPy or the first interpreter.
"""
