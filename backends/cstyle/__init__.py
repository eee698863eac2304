"""LINEAR kernels as text of the C family: the renderer that the c and opencl backends share.

Takes: LINEAR over SELECTED ops, and a `Language`. Gives: the lines of a function, with the helpers it needs.
"""
