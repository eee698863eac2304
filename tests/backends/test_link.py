"""Distances in instructions of RISC-V, whose two parts are added as signed numbers."""

from __future__ import annotations

import struct

import pytest

from uops.backends.cross.codegen import GENERATOR
from uops.backends.link import link_object
from uops.spec.errors import Crash

#: A function that calls another one, by `auipc` and `jalr`.
CALLER = "declare void @syscall()\ndefine void @f() nounwind {\n  call void @syscall()\n  ret void\n}\n"
BASE = 0x1_0000_0000


def link_call(distance: int) -> int:
    """The distance that the two instructions of a linked call add."""
    image = GENERATOR.compile_object("riscv64", "FAST", CALLER)
    at = link_object(image, BASE, {"syscall": BASE}).data.index(b"\xe7\x80") - 4  # jalr ra, ra
    linked = link_object(image, BASE, {"syscall": BASE + at + distance}).data
    upper, jump = struct.unpack_from("<ii", linked, at)
    return (upper >> 12 << 12) + (jump >> 20)


@pytest.mark.parametrize("distance", [0, 0x7FE, 0x800, -0x800, -0x802, 0x7FFFF7FE, -0x80000000, -0x80000800])
def test_a_call_on_riscv_has_the_distance_of_its_function(distance: int) -> None:
    assert link_call(distance) == distance


@pytest.mark.parametrize("distance", [0x7FFFF800, 0x7FFFFFFE, 0x80000000, -0x80000802])
def test_a_distance_whose_upper_part_has_more_bits_is_refused(distance: int) -> None:
    with pytest.raises(Crash, match=r"a distance of -?\d+ needs more than 32 bits"):
        link_call(distance)
