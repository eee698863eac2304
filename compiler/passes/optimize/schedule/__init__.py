"""A kernel under scheduling, and the transforms from which schedules are built.

Takes: a KERNEL body. Gives: a SCHEDULED one. `schedule` and `optops` apply OptOps as substitutions of Ranges. The other modules
insert memory, lanes and tensor cores, or decide whether a transform is legal.
"""
