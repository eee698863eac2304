"""gcc and clang: the claims about any machine that depend most on a compiler's flags; a kernel takes them a tenth of a second."""

import pytest
from alu_claims import (  # noqa: F401 - the claims are tests
    test_a_float_constant_has_exactly_its_bits_R23,
    test_an_op_on_constants_is_no_less_defined_R16,
    test_float_binary_R11_R16_R19,
    test_float_neg_flips_the_sign_of_a_nan_and_keeps_its_payload_R21,
    test_float_unary_R16_R21,
    test_integer_unary_R10_R21,
    test_mulacc_rounds_once_R16,
)
from kernel_claims import (  # noqa: F401
    test_a_bitcast_of_a_reference_is_the_same_address,
    test_a_false_gate_leaves_the_address_untouched_R52,
    test_a_loop_with_several_accumulators,
    test_load_store_where_and_registers_keep_nan_payloads_R28,
    test_nested_loops_and_an_accumulator,
    test_the_floating_point_environment_is_left_alone_R19,
)


@pytest.fixture(params=["gcc", "clang"])
def tier(request: pytest.FixtureRequest) -> str:
    return str(request.param)
