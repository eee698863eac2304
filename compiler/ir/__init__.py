"""What every pass needs to know of a graph: affine forms of indices, loops, views, accumulators, and loops without an iteration.

Takes and gives nodes of any dialect. Nothing here chooses: it says what is so, and builds what is asked for.
"""
