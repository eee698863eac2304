"""The rules of the five derived properties, a module per property and a function per rule of the specification's table.

A rule may assume that the node's claims hold. Whatever it raises on other nodes becomes a SpecError in `uops.spec.ir.node`. The
names of the rules are part of the specification: `uops spec` prints them.
"""

from uops.spec.ir.derive import axis, device, dtype, minmax, shape
from uops.spec.ir.node import RULES
from uops.spec.ir.ops import Op

_RULES = {"dtype": dtype.RULES, "shape": shape.RULES, "device": device.RULES, "min_max": minmax.RULES, "axis": axis.RULES}

for _property, _rules in _RULES.items():
    assert _rules.keys() == set(Op), f"spec/ir/derive/{_property.replace('_', '')}.py: add a rule for {set(Op) - _rules.keys()}"
    RULES[f"_{_property}"].update(_rules)
