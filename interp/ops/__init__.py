"""The computations of ops as functions of NumPy arrays; only the arguments of a node are read, never a graph."""
