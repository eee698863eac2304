"""The tensor machine: evaluation of a graph node by node, with memory, scopes, and checks of the derived properties."""
