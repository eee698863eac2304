"""The loops of a kernel, read off a graph or an instruction list, and the orders in which they may run."""
