"""Tensor-core descriptors: lane maps against their documents, faults that are told with their places, the claim of Wmma."""

import dataclasses

import pytest

from uops.spec.errors import SpecError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import WmmaArg
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.verify.verifier import find_broken_claims
from uops.spec.wmma import (
    DESCRIPTORS,
    OPERANDS,
    LaneElement,
    LaneMapStatus,
    TableLaneMap,
    affine_map,
    descriptors_named,
    find_all_holders_of_element,
    find_descriptor,
    find_operand_map_fault,
    lane_map_difference,
    lane_map_fault,
    registry,
    validate_and_register_descriptor,
)

ALL = pytest.mark.parametrize("d", DESCRIPTORS, ids=lambda d: f"{d.name}-{d.dtype_in}")


def _arg(d, **changed):
    fields = {"name": d.name, "dims": d.dims, "dtype_in": d.dtype_in, "dtype_out": d.dtype_out, "threads": d.threads}
    return WmmaArg(**{**fields, "device": "GPU", **changed})


def _one(name):
    (d,) = descriptors_named(name)
    return d


PTX16 = _one("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
RDNA3 = _one("v_wmma_f32_16x16x16_f16")


def _table(m):
    """The same map as an explicit list, to plant errors in."""
    return [[m.place(t, e) for e in range(m.elements)] for t in range(m.lanes)]


def _planted(m, change):
    places = _table(m)
    change(places)
    return TableLaneMap(tuple(map(tuple, places)))


def _swap(places):
    places[3][1], places[9][0] = places[9][0], places[3][1]


@pytest.fixture
def own_registry(monkeypatch):
    monkeypatch.setattr(registry, "_known", dict(registry._known))


# The data


@ALL
def test_lane_maps_are_bijections_or_hold_the_stated_copies(d):
    assert find_operand_map_fault(d) is None
    for operand in OPERANDS:
        rows, cols = d.shape(operand)
        assert d.threads * d.map(operand).elements == rows * cols * d.copies(operand)


@ALL
def test_every_descriptor_is_cited(d):
    host = {"NVIDIA": "docs.nvidia.com", "AMD": "github.com/ROCm", "Intel": "www.intel.com"}
    for source in (d.source, d.accumulator.source):
        assert source.title and source.section
    assert d.status in LaneMapStatus and d.accumulator.text and d.source.url.startswith("https://")
    assert d.status is LaneMapStatus.UNCONFIRMED or host[d.vendor] in d.source.url


@ALL
def test_found_by_name_dims_dtypes_and_threads_only(d):
    assert find_descriptor(_arg(d)) is d and find_descriptor(_arg(d, device="another", upcast_a=((0, 2),))) is d
    n, m, k = d.dims
    for other in ({"name": d.name + "x"}, {"dims": (n, m, k * 2)}, {"threads": d.threads * 2}, {"dtype_out": dt.uint16}):
        assert find_descriptor(_arg(d, **other)) is None


def test_keys_are_distinct_and_names_printed():
    assert len({d.key for d in DESCRIPTORS}) == len(DESCRIPTORS)
    assert str(PTX16).splitlines()[:4] == [
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 (NVIDIA sm_80, confirmed): 16x8x16 float16 to float32",
        "  A: row = lane/4 + 8*(element/2%2), col = 2*(lane%4) + element%2 + 8*(element/4)",
        "  B: row = 2*(lane%4) + element%2 + 8*(element/2), col = lane/4",
        "  C: row = lane/4 + 8*(element/2), col = 2*(lane%4) + element%2",
    ]
    assert "  A: row = lane%16, col = element, 2 copies" in str(RDNA3)


# Worked out by hand from the rules printed in PTX ISA 9.7.14.5, per shape, for A, B, C: "lane.element row,col".
PTX_FACTS = {
    "m8n8k4": (
        "0.0 0,0  9.0 2,1  31.0 7,3",
        "4.0 0,1  9.0 1,2  31.0 3,7",
        "9.0 2,2  9.1 2,3  30.1 7,5",
    ),
    "m8n8k16": (
        "9.0 2,4  9.3 2,7  31.2 7,14",
        "9.0 4,2  9.3 7,2  31.1 13,7",
        "9.0 2,2  9.1 2,3  31.1 7,7",
    ),
    "m16n8k8": (
        "6.1 1,5  6.2 9,4  31.3 15,7",
        "6.0 4,1  6.1 5,1  28.1 1,7",
        "6.1 1,5  6.2 9,4  0.3 8,1",
    ),
    "m16n8k16": (
        "5.0 1,2  5.3 9,3  30.6 15,12  30.5 7,13",
        "5.1 3,1  5.2 10,1  31.3 15,7",
        "5.0 1,2  5.3 9,3  31.2 15,6",
    ),
    "m16n8k16 of bytes": (
        "9.0 2,4  9.5 10,5  31.7 15,15",
        "9.0 4,2  9.2 6,2  31.3 15,7",
        "9.1 2,3  9.2 10,2  31.3 15,7",
    ),
    "m16n8k32": (
        "9.3 2,7  9.6 10,6  9.9 2,21  9.14 10,22",
        "9.3 7,2  9.4 20,2  31.7 31,7",
        "9.0 2,2  9.3 10,3  31.2 15,6",
    ),
}
# Likewise from the formulas of AMD's calculator, MLX's get_coord and the operation sections of Intel's manual.
OTHER_FACTS = {
    "v_wmma_f32_16x16x16_f16": (
        "3.5 3,5  19.5 3,5  15.15 15,15",
        "3.5 5,3  19.5 5,3  31.0 0,15",
        "3.0 0,3  19.0 1,3  17.7 15,1",
    ),
    "v_mfma_f32_16x16x16_f16": (
        "17.2 1,6  5.3 5,3  63.3 15,15",
        "17.2 6,1  5.3 3,5  63.3 15,15",
        "17.2 6,1  5.3 3,5  63.3 15,15",
    ),
    "v_mfma_f32_32x32x8_f16": (
        "33.2 1,6  5.3 5,3  63.3 31,7",
        "33.2 6,1  5.3 3,5  63.3 7,31",
        "33.5 13,1  33.15 31,1  0.4 8,0",
    ),
    "v_mfma_f64_16x16x4_f64": (
        "17.0 1,1  47.0 15,2  63.0 15,3",
        "17.0 1,1  47.0 2,15  63.0 3,15",
        "17.2 9,1  0.3 12,0  63.3 15,15",
    ),
    "v_mfma_i32_16x16x32_i8": (
        "17.2 1,10  5.7 5,7  63.7 15,31",
        "17.2 10,1  5.7 7,5  63.7 31,15",
        "17.2 6,1  5.3 3,5  63.3 15,15",
    ),
    "v_mfma_i32_32x32x16_i8": (
        "33.2 1,10  5.7 5,7  63.7 31,15",
        "33.2 10,1  5.7 7,5  63.7 15,31",
        "33.5 13,1  33.15 31,1  0.4 8,0",
    ),
    "simdgroup_multiply_accumulate": (
        "1.0 0,2  2.1 1,1  8.0 0,4  16.1 4,1  31.1 7,7",
        "1.0 0,2  2.1 1,1  8.0 0,4  16.1 4,1  31.1 7,7",
        "1.0 0,2  2.1 1,1  8.0 0,4  16.1 4,1  31.1 7,7",
    ),
    "tdpbf16ps": (
        "0.33 1,1  0.31 0,31  0.511 15,31",
        "0.1 1,0  0.2 0,1  0.32 2,0",
        "0.15 0,15  0.16 1,0  0.255 15,15",
    ),
    "tdpbssd": (
        "0.65 1,1  0.63 0,63  0.1023 15,63",
        "0.3 3,0  0.4 0,1  0.64 4,0",
        "0.15 0,15  0.16 1,0  0.255 15,15",
    ),
}


def _shape_of(d):
    shape = d.name.split(".")[3]
    return "m16n8k16 of bytes" if shape == "m16n8k16" and d.dtype_in.bits == 8 else shape


FACTS = [(d, PTX_FACTS[_shape_of(d)]) for d in DESCRIPTORS if d.vendor == "NVIDIA"]
FACTS += [(d, OTHER_FACTS[d.name]) for d in DESCRIPTORS if d.name in OTHER_FACTS]


@pytest.mark.parametrize(("d", "facts"), FACTS, ids=[f"{d.name}-{d.dtype_in}" for d, _ in FACTS])
def test_lane_maps_agree_with_the_documents(d, facts):
    for operand, listed in zip(OPERANDS, facts):
        words = listed.split()
        assert len(words) >= 6
        for holder, place in zip(words[::2], words[1::2]):
            lane, element = map(int, holder.split("."))
            assert d.map(operand).place(lane, element) == tuple(map(int, place.split(","))), (operand, holder)


def test_every_shape_has_facts():
    assert {_shape_of(d) for d, _ in FACTS if d.vendor == "NVIDIA"} == set(PTX_FACTS)
    maps = {(d.a, d.b, d.c) for d, _ in FACTS}
    assert {(d.a, d.b, d.c) for d in DESCRIPTORS} == maps


# Planted faults


def test_a_duplicate_is_told_with_both_places_and_the_missing_element():
    def duplicate(places):
        places[7][1] = places[3][1]

    wrong = dataclasses.replace(PTX16, a=_planted(PTX16.a, duplicate))
    assert find_operand_map_fault(wrong) == "A: lane 3 element 1 and lane 7 element 1 hold (0, 7); (1, 7) is held by none"


def test_an_element_outside_of_the_matrix_is_told():
    def shift(places):
        places[31][3] = (16, 7)

    wrong = dataclasses.replace(PTX16, c=_planted(PTX16.c, shift))
    assert find_operand_map_fault(wrong) == "C: lane 31 element 3 holds (16, 7), outside of 16x8"


def test_a_map_of_other_lanes_is_told():
    assert find_operand_map_fault(dataclasses.replace(PTX16, threads=64)) == "A: the map has 32 lanes, the instruction 64"


def test_copies_are_faults_unless_stated():
    told = find_operand_map_fault(dataclasses.replace(RDNA3, copies_a=1))
    assert told == "A: lane 0 element 0 and lane 16 element 0 hold (0, 0)"
    assert find_all_holders_of_element(RDNA3, "B", LaneElement(3, 5)) == (LaneElement(3, 5), LaneElement(19, 5))
    assert find_all_holders_of_element(RDNA3, "C", LaneElement(3, 5)) == (LaneElement(3, 5),)


def test_stated_copies_must_be_there():
    def third(places):
        places[20][0] = places[1][0]

    assert lane_map_fault(_planted(RDNA3.a, third), 16, 16, 2) == (
        "lane 1 element 0 and lane 17 element 0 and lane 20 element 0 hold (1, 0), 2 copies are stated"
    )
    assert lane_map_fault(PTX16.c, 16, 8, 2) == "(0, 0) is held by lane 0 element 0, 2 needed"
    assert lane_map_fault(affine_map("2:row", ""), 3, 1) == "(2, 0) is held by none, 1 needed"


def test_a_swap_is_still_a_bijection_and_is_told_against_the_right_map():
    swapped = _planted(PTX16.a, _swap)
    assert lane_map_fault(swapped, 16, 16) is None
    assert lane_map_difference(swapped, PTX16.a) == "lane 3 element 1 holds (2, 2), not (0, 7), which lane 9 element 0 holds"
    assert lane_map_difference(PTX16.a, _planted(PTX16.a, lambda places: None)) is None
    assert lane_map_difference(PTX16.a, PTX16.b) == "32 lanes of 8 elements, not 32 of 4"


@pytest.mark.parametrize("digit", ["row", "0:row", "4:depth", "4:row*", "4:copy*2", "-4:row", "4:row*2x"])
def test_a_digit_that_cannot_be_read_is_refused(digit):
    with pytest.raises(ValueError, match="no digit of a lane map"):
        affine_map(digit, "")


# A backend's own


@pytest.mark.usefixtures("own_registry")
def test_a_registered_descriptor_is_found():
    own = dataclasses.replace(RDNA3, name="own_wmma")
    assert find_descriptor(_arg(own)) is None
    validate_and_register_descriptor(own)
    validate_and_register_descriptor(dataclasses.replace(own))
    assert find_descriptor(_arg(own)) == own and descriptors_named("own_wmma") == (own,)


@pytest.mark.usefixtures("own_registry")
def test_a_wrong_descriptor_is_not_registered():
    with pytest.raises(SpecError, match=r"own_wmma \(R118\): A: lane 0 element 0 and lane 16 element 0 hold \(0, 0\)"):
        validate_and_register_descriptor(dataclasses.replace(RDNA3, name="own_wmma", copies_a=1))
    swapped = dataclasses.replace(PTX16, a=_planted(PTX16.a, _swap))
    with pytest.raises(SpecError, match=r"A: lane 3 element 1 holds \(2, 2\), not \(0, 7\), which lane 9 element 0 holds"):
        validate_and_register_descriptor(swapped)
    with pytest.raises(SpecError, match="the lane maps agree"):
        validate_and_register_descriptor(dataclasses.replace(PTX16, note="another"))
    assert find_descriptor(_arg(PTX16)) is PTX16


# The claim


def _wmma(d, sizes=None, **changed):
    sizes = sizes or [d.map(o).elements for o in OPERANDS]
    dtypes = (d.dtype_in, d.dtype_in, d.dtype_out)
    return UOp(Op.WMMA, tuple(b.param(k, (n,), t) for k, (t, n) in enumerate(zip(dtypes, sizes))), _arg(d, **changed))


def _told(u):
    return [(x.claim.id, x.detail) for x in find_broken_claims(u) if x.node is u]


@ALL
def test_fragments_of_the_descriptor_are_accepted(d):
    assert _told(_wmma(d)) == []


@ALL
def test_fragments_of_another_size_are_rejected(d):
    right = [d.map(o).elements for o in OPERANDS]
    for at in range(3):
        sizes = [n + (k == at) for k, n in enumerate(right)]
        assert _told(_wmma(d, sizes)) == [
            ("WMMA.C4", f"source {at} needs the descriptor's {right[at]} per lane, got ({sizes[at]})")
        ]


def test_copies_count_in_the_fragments_of_a_known_name_only():
    assert [id for id, _ in _told(_wmma(RDNA3, (8, 8, 8)))] == ["WMMA.C4"]
    assert _told(_wmma(RDNA3, (8, 8, 8), name="unknown")) == []
    assert [id for id, _ in _told(_wmma(RDNA3, name="unknown"))] == ["WMMA.C4"]


def test_a_known_name_has_its_configuration():
    assert _told(_wmma(RDNA3, (4, 4, 4), threads=64)) == [
        (
            "WMMA.C4",
            "v_wmma_f32_16x16x16_f16 is dims (16, 16, 16) of float16 to float32 over 32 lanes, "
            "got dims (16, 16, 16) of float16 to float32 over 64 lanes",
        )
    ]
