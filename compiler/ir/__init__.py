"""Facts of a graph that every pass needs: affine forms of indices, loops, views, accumulators, zero-trip loops.

Takes and gives nodes of any dialect. Nothing here makes a choice: it derives facts, and builds nodes for its callers.
"""
