"""LINEAR kernels as text of the C family: what the c and opencl backends share."""
