"""Host arrays as memory of the GPU, for the launches of a program.

A span is copied to the device when the first kernel needs it, and back at the end if a kernel may have written it. So arrays
that no kernel touches are never copied, and read-only arrays are never written.
"""

from __future__ import annotations

from collections.abc import Sequence

from uops.backends.cuda import driver
from uops.backends.lending import LentSpan, MemoryLender


class DeviceSpan(LentSpan):
    """A range of host addresses. `address` is that of its copy on the device, 0 if there is none yet."""

    __slots__ = ("address", "written")

    def __init__(self, start: int, stop: int) -> None:
        super().__init__(start, stop)
        self.address = 0
        self.written = False


class DeviceMemory(MemoryLender[DeviceSpan]):
    """The spans that are lent to a GPU."""

    def open_span(self, start: int, stop: int) -> DeviceSpan:
        """Remember a range of host memory."""
        return DeviceSpan(start, stop)

    def device_address(self, host: int, written: bool) -> int:
        """Return the device's address of a host address; 0 for that of an empty array."""
        span = self.find_span(host)
        if span is None:
            return 0
        if not span.address:
            self._allocate(span)
            driver.copy_to_device(span.address, span.start, span.stop - span.start)
        span.written |= written
        return span.address + host - span.start

    def allocate_without_contents(self, host: int) -> None:
        """Allocate the span of a host address, if it has no memory on the device; its contents are undefined there."""
        span = self.find_span(host)
        if span is not None and not span.address:
            self._allocate(span)

    def keep_host_contents(self, host: int) -> None:
        """Forget that kernels wrote the span of a host address: it is not copied back."""
        span = self.find_span(host)
        if span is not None:
            span.written = False

    def _allocate(self, span: DeviceSpan) -> None:
        span.address = driver.allocate(span.stop - span.start)

    def duplicate_rest_of_span_on_device(self, host: int) -> int:
        """Return the address of a copy of what a lent array holds from an address on. The caller frees it."""
        span = self.find_span(host)
        assert span is not None, host
        size = span.stop - host
        copy = driver.allocate(size)
        driver.copy_on_device(copy, self.device_address(host, False), size)
        return copy

    def return_spans(self, spans: Sequence[DeviceSpan]) -> None:
        """Copy back what kernels may have written, and wait."""
        for s in spans:
            if s.written:
                driver.copy_to_host(s.start, s.address, s.stop - s.start)
        driver.synchronize()

    def close_span(self, span: DeviceSpan) -> None:
        """Free the copy on the device."""
        if span.address:
            driver.free(span.address)
            span.address = 0
