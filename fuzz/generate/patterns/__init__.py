"""Generators of graphs with a given form at the top: the left sides of rewrite rules, and functions of optional rows.

Takes: choices, and what the backend supports. Gives: a graph, and its inputs.
"""
