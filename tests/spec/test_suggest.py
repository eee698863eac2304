"""A name that names nothing is answered with the known ones that are close to it."""

from __future__ import annotations

import pytest

from uops.spec.suggest import format_did_you_mean

KNOWN = ("tensor", "ops", "reference", "Movement/Pad", "odd\x1b[31m")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tensr", "; did you mean tensor?"), ("REFRENCE", "; did you mean reference?"),
        ("movement/pd", "; did you mean Movement/Pad?"),
        ("odd\x1b[31", "; did you mean odd\\x1b[31m?"), ("nobody", ""), ("", ""),
    ],
)  # fmt: skip
def test_close_names_are_suggested_whatever_their_case(name: str, said: str) -> None:
    assert format_did_you_mean(name, KNOWN) == said


def test_suggestions_do_not_depend_on_the_order_of_what_is_known() -> None:
    names = [f"name{k}" for k in range(6)]
    assert format_did_you_mean("name", names) == format_did_you_mean("name", reversed(names))
