"""The rules of the five derived properties, a module per property and a function per rule of the specification's table.

A rule may assume that the node's claims hold. Whatever it raises on other nodes becomes a SpecError in `uops.spec.ir.node`. The
names of the rules are part of the specification: `uops spec` prints them.
"""

from uops.spec.ir.derive import axis, device, dtype, minmax, shape
from uops.spec.ir.node import RULES

RULES["_dtype"].update(dtype.RULES)
RULES["_shape"].update(shape.RULES)
RULES["_device"].update(device.RULES)
RULES["_min_max"].update(minmax.RULES)
RULES["_axis"].update(axis.RULES)
