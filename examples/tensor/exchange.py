"""Memory that is shared with NumPy and, by DLPack, with every other library on the CPU."""

import numpy as np

from uops import Tensor

array = np.arange(4, dtype=np.float32)
copied, shared = Tensor(array), Tensor.from_numpy(array)
assert np.shares_memory(shared.numpy(), array)
assert not np.shares_memory(copied.numpy(), array)

doubled = shared * 2
view = np.from_dlpack(doubled)  # read-only: a Tensor's memory is never changed
assert np.shares_memory(view, doubled.numpy())
assert np.array(doubled).flags.writeable  # a copy
