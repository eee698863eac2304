"""Kernels in Unicorn, an emulator of processors as a library: no program and no system, for where qemu-user is not installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, NamedTuple

from uops.backends.cross.code import BASE, DATA, SIZE, NativeCode
from uops.backends.cross.processors import Processor
from uops.spec.errors import Crash

_STACK_SIZE = 16 << 20
#: Bytes that are mapped at a time.
_CHUNK = 64 << 20


class _Setting(NamedTuple):
    """A processor in Unicorn: its names of the processor and the mode, what switches floats on, and what makes a call."""

    arch: str
    mode: str
    prepare: Callable[[Any, Any], None]
    call: Callable[[Any, Any, int, int, int, int], None]


def _enable_floats_aarch64(engine: Any, names: Any) -> None:
    """Permit the float and vector instructions (CPACR_EL1.FPEN)."""
    engine.reg_write(names.UC_ARM64_REG_CPACR_EL1, 3 << 20)


def _enable_floats_riscv(engine: Any, names: Any) -> None:
    """Permit the float instructions (mstatus.FS)."""
    engine.reg_write(names.UC_RISCV_REG_MSTATUS, engine.reg_read(names.UC_RISCV_REG_MSTATUS) | 3 << 13)


def _enable_nothing(engine: Any, names: Any) -> None:
    """Do nothing: floats are there."""


def _make_argument_register_setter(*argument_return_and_stack_registers: str) -> Callable[[Any, Any, int, int, int, int], None]:
    """Return a function that sets the registers of two arguments, the return address and the stack."""

    def call(engine: Any, names: Any, buffers: int, scalars: int, back: int, stack: int) -> None:
        for register, value in zip(argument_return_and_stack_registers, (buffers, scalars, back, stack), strict=True):
            engine.reg_write(getattr(names, register), value)

    return call


def _call_by_stack(engine: Any, names: Any, buffers: int, scalars: int, back: int, stack: int) -> None:
    """Push two arguments and the return address."""
    engine.mem_write(stack - 12, b"".join(x.to_bytes(4, "little") for x in (back, buffers, scalars)))
    engine.reg_write(names.UC_X86_REG_ESP, stack - 12)


_SETTINGS = {
    "aarch64": _Setting(
        "arm64", "ARM", _enable_floats_aarch64,
        _make_argument_register_setter("UC_ARM64_REG_X0", "UC_ARM64_REG_X1", "UC_ARM64_REG_LR", "UC_ARM64_REG_SP"),
    ),
    "riscv64": _Setting(
        "riscv", "RISCV64", _enable_floats_riscv,
        _make_argument_register_setter("UC_RISCV_REG_A0", "UC_RISCV_REG_A1", "UC_RISCV_REG_RA", "UC_RISCV_REG_SP"),
    ),
    "i686": _Setting("x86", "32", _enable_nothing, _call_by_stack),
}  # fmt: skip


def is_unicorn_installed() -> bool:
    """Return True if the package is installed."""
    return find_spec("unicorn") is not None


class UnicornEngine:
    """An emulated processor with memory, in this process."""

    name = "unicorn"

    def __init__(self, processor: Processor, support: Callable[[], bytes]) -> None:
        unicorn: Any = import_module("unicorn")  # late: an extra
        self.processor, self.data = processor, DATA
        self._setting = _SETTINGS[processor.name]
        arch = getattr(unicorn, f"UC_ARCH_{self._setting.arch.upper()}")
        self._engine: Any = unicorn.Uc(arch, getattr(unicorn, f"UC_MODE_{self._setting.mode}"))
        self._error = unicorn.UcError
        self._names = import_module(f"unicorn.{self._setting.arch}_const")
        self._engine.mem_map(BASE - _STACK_SIZE, _STACK_SIZE)
        self._mapped = BASE
        self._setting.prepare(self._engine, self._names)
        self.code = NativeCode(self.write, self._forget_code, support)

    def version(self) -> str:
        """Return the package's version."""
        return f"Unicorn {version('unicorn')}"

    def write(self, address: int, data: bytes | memoryview) -> None:
        """Write memory."""
        while self._mapped < min(address + len(data), BASE + SIZE):
            self._engine.mem_map(self._mapped, _CHUNK)
            self._mapped += _CHUNK
        self._engine.mem_write(address, bytes(data))

    def read_into(self, address: int, data: memoryview) -> None:
        """Read memory."""
        data[:] = self._engine.mem_read(address, len(data))

    def call(self, function: int, buffers: int, scalars: int) -> None:
        """Run a kernel. Raises Crash if it faults."""
        back = BASE - 16  # no code is there: the kernel's return ends the emulation
        self._setting.call(self._engine, self._names, buffers, scalars, back, BASE - 64)
        try:
            self._engine.emu_start(function, back)
        except self._error as e:
            raise Crash(f"a kernel faults in Unicorn: {e}") from e

    def close(self) -> None:
        """Release the memory."""
        self._engine = None

    def _forget_code(self) -> None:
        """Drop the translations of code."""
        self._engine.ctl_flush_tb()
