"""Kernels: the structure of loops, the lane machine that defines their meaning, the vector machine, and Calls of kernels."""
