"""The descriptors by name, dims, dtypes and threads; a backend adds its own (R118)."""

from __future__ import annotations

from uops.spec.errors import SpecError
from uops.spec.ir.args import WmmaArg
from uops.spec.wmma import amd, apple, intel, nvidia
from uops.spec.wmma.descriptor import OPERANDS, Descriptor, Key, find_operand_map_fault
from uops.spec.wmma.maps import lane_map_difference

#: The descriptors of this package, by vendor.
DESCRIPTORS: tuple[Descriptor, ...] = (*nvidia.DESCRIPTORS, *amd.DESCRIPTORS, *apple.DESCRIPTORS, *intel.DESCRIPTORS)

_known: dict[Key, Descriptor] = {d.key: d for d in DESCRIPTORS}


def find_descriptor(arg: WmmaArg) -> Descriptor | None:
    """Return the descriptor with the name, dims, dtypes and threads of a Wmma's arg; None if there is none."""
    return _known.get((arg.name, arg.dims, arg.dtype_in, arg.dtype_out, arg.threads))


def descriptors_named(name: str) -> tuple[Descriptor, ...]:
    """Return every descriptor with a name."""
    return tuple(d for d in _known.values() if d.name == name)


def validate_and_register_descriptor(d: Descriptor) -> None:
    """Add a descriptor for the rest of the process; adding an equal one again does nothing.

    Raises SpecError if a map does not hold each element as often as its vendor states. Raises it also if another descriptor has the
    same name, dims, dtypes and threads.
    """
    fault = find_operand_map_fault(d)
    if fault is not None:
        raise SpecError(f"{d.name} (R118): {fault}")
    old = _known.setdefault(d.key, d)
    if old != d:
        differences = (f"{o}: {x}" for o in OPERANDS if (x := lane_map_difference(d.map(o), old.map(o))))
        difference = next(differences, "the lane maps agree")
        raise SpecError(f"{d.name} (R118): there is another descriptor of this name, dims, dtypes and threads; {difference}")
