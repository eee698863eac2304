"""Generators of graphs of the second document.

`maker` has the state of a graph under construction and its leaves. `families` has one family of graphs per op, and the law that
they test.
"""
