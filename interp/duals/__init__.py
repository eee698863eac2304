"""Forward mode in exact arithmetic: values and directional derivatives of TENSOR graphs, over fractions.

`evaluate.evaluate_duals` takes values and tangents of the inputs and gives those of the results. It shares nothing with the
gradient rules of the specification. For a graph f, its Jacobian J and any v and g, <g, J v> = <J' g, v> compares the two without
rounding.
"""
