"""The five derived properties, one module each, one small function per rule of the specification's table.

A rule may assume that the node's claims hold; what it raises otherwise becomes a SpecError in `uops.spec.ir.node`.
"""

from uops.spec.ir.derive import axis, device, dtype, minmax, shape
from uops.spec.ir.node import RULES

RULES["_dtype"].update(dtype.RULES)
RULES["_shape"].update(shape.RULES)
RULES["_device"].update(device.RULES)
RULES["_min_max"].update(minmax.RULES)
RULES["_axis"].update(axis.RULES)
