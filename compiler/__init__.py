"""How a graph becomes fast: stages from tensor programs to linear kernels, each verified."""
