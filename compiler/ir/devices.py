"""The devices of a compiled program, by their names.

Takes: a graph. Raises Unsupported for a device that no target of this compiler has. Spec: R181 (names of devices).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from uops.spec.errors import Unsupported
from uops.spec.ir.args import Device
from uops.spec.ir.node import UOp, nodes_with_op
from uops.spec.ir.ops import MEMORY_ROOTS, Op
from uops.spec.untrusted import escape_to_one_line

#: The device of memory that a caller passes for values on several devices (R182, memory of callers).
HOST = "CPU"
#: The numbers of devices of one kind are below this.
MOST_OF_A_KIND = 64
_NAME = re.compile(r"(?:CPU|GPU|D):?(\d{1,2})?")


def is_known_device(name: str) -> bool:
    """Return True if targets of this compiler have a device of this name: CPU, GPU or D, perhaps with a number."""
    match = _NAME.fullmatch(name)
    return match is not None and int(match[1] or 0) < MOST_OF_A_KIND


def find_named_devices(graph: UOp) -> list[Device]:
    """Return the devices that a graph names, each once; a tuple of them is one."""
    nodes = [u for op in (*MEMORY_ROOTS, Op.LOAD) for u in nodes_with_op(graph, op)]
    return list(dict.fromkeys(u.arg.device for u in nodes if u.arg.device is not None))


def require_known_device_names(named: Iterable[Device], target_for_message: str) -> None:
    """Raise Unsupported, with a target in the message, for a device that no target of this compiler has."""
    for device in named:
        unknown = next((d for d in (device if isinstance(device, tuple) else (device,)) if not is_known_device(d)), None)
        if unknown is not None:
            expected = f"expected CPU, GPU or D, perhaps with a number below {MOST_OF_A_KIND} (R181, names of devices)"
            raise Unsupported(f"the device {escape_to_one_line(unknown)}: {expected}", target_for_message)
