"""Devices: copies to another device, and shards on several. Spec: Load; R53 (Copy), R74 to R76 (devices and sharding)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from uops.compiler.ir.devices import is_known_device
from uops.compiler.tensor import storage
from uops.compiler.tensor.faults import fault, format_for_error
from uops.compiler.tensor.methods.exchange import ExchangeMethods
from uops.spec.errors import SpecTypeError


class DeviceMethods(ExchangeMethods):
    """Methods that move a Tensor to other devices."""

    __slots__ = ()

    def to(self, device: str | Sequence[str]) -> Self:
        """Copy to a device; to several, to each of them the whole Tensor.

        A device is CPU, GPU or D, perhaps with a number behind a colon (R181: names of devices). Raises SpecTypeError for anything
        else than names, SpecValueError for a name that there is no device of.
        """
        return self.of(storage.copy_to_devices(self.uop, self._require_known_distinct_devices("to", device), None))

    def shard(self, devices: Sequence[str], axis: int | None = 0) -> Self:
        """Divide an axis among several devices, a part for each in order; None puts the whole Tensor on each of them.

        Raises SpecValueError unless the number of devices divides the extent (R75: n-tuple sizes), and as `to` does.
        """
        names = self._require_known_distinct_devices("shard", devices)
        if not isinstance(names, tuple):
            raise fault("shard", None, f"expected a sequence of devices, got {format_for_error(devices)}", SpecTypeError)
        number = None if axis is None else self._normalize_axis("shard", axis, "LOAD.C7")
        if number is not None and self.shape[number] % len(names):
            wanted = f"expected an extent that {len(names)} devices divide"
            raise fault("shard", "LOAD.C7", f"{wanted} on axis {axis} of shape {self.shape}, got {self.shape[number]}")
        return self.of(storage.copy_to_devices(self.uop, names, number))

    def _require_known_distinct_devices(self, method: str, given: Any) -> str | tuple[str, ...]:
        """Return the name of a device, or a tuple of distinct names."""
        names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, (list, tuple)) else ()
        if not names or not all(isinstance(n, str) for n in names):
            raise fault(method, None, f"expected the name of a device, or several, got {format_for_error(given)}", SpecTypeError)
        unknown = next((n for n in names if not is_known_device(n)), None)
        if unknown is not None:
            raise fault(method, None, f"expected CPU, GPU or D, perhaps with a number as in GPU:1, got {format_for_error(unknown)}")
        if len(set(names)) < len(names):
            raise fault(method, None, f"expected distinct devices, got {format_for_error(given)}")
        return given if isinstance(given, str) else names
