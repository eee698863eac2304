"""Facts of a graph that every pass needs: affine forms of indices, loops, lanes, extents, Buffers, views, work, accumulators.

Takes and gives nodes of any dialect. Nothing here makes a choice: it derives facts, and builds nodes and instruction lists for its
callers.
"""
