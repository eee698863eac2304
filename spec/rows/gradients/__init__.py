"""Gradients of rows: the vector-Jacobian product of each op, as a graph, and reverse mode over a graph.

`reverse.GRADIENTS` is the column of the op table. `reverse.differentiate` takes cotangents of some nodes and returns those of
others. The other modules have the rules by family. R78 and R183 to R187 (gradients) decide what calculus leaves open.
"""
