"""A kernel under scheduling, and the transforms that OptOps are made of.

Takes: a KERNEL body. Gives: a SCHEDULED one. `schedule` applies OptOps as substitutions of Ranges; the other modules insert memory,
lanes and tensor cores, and say what a transform needs to be legal.
"""
