"""Fingerprints: what is equal, what is not, and the integers that they stand for."""

import numpy as np

from uops.compiler.validate.fingerprints.mixing import (
    combine,
    combine_unordered,
    fingerprint_of_words,
    of_integers,
    scramble,
    to_integers,
    unscramble,
)

SOME = np.random.default_rng(5).integers(0, 2**64, 5000, np.uint64)
OTHERS = np.random.default_rng(6).integers(0, 2**64, 5000, np.uint64)
F, G = fingerprint_of_words("f"), fingerprint_of_words("g")


def test_scramble_is_one_to_one_and_changes_half_of_the_bits():
    assert (unscramble(scramble(SOME)) == SOME).all()
    near = np.bitwise_count(scramble(SOME) ^ scramble(SOME ^ np.uint64(1)))
    assert 31 < near.mean() < 33


def test_integers_come_back():
    assert (to_integers(of_integers(SOME)) == SOME).all()


def test_only_the_unordered_combination_has_no_order():
    assert (combine_unordered(F, SOME, OTHERS) == combine_unordered(F, OTHERS, SOME)).all()
    assert not (combine(F, SOME, OTHERS) == combine(F, OTHERS, SOME)).any()


def test_operations_operands_and_their_number_tell_terms_apart():
    terms = [
        *(combine(tag, SOME, OTHERS) for tag in (F, G)), *(combine_unordered(tag, SOME, OTHERS) for tag in (F, G)),
        combine(F, SOME), combine(F, OTHERS), combine(F, SOME, SOME), combine_unordered(F, SOME, SOME), SOME, OTHERS,
    ]  # fmt: skip
    assert len(np.unique(np.concatenate(terms))) == sum(map(len, terms))


def test_positions_in_a_row_have_no_relation_that_sums_would_hide():
    elements = combine(F, np.arange(4096, dtype=np.uint64))
    sums = elements[:-1] + elements[1:]
    assert len(np.unique(sums)) == len(sums) and len(np.unique(elements[1:] - elements[:-1])) == len(sums)


def test_the_operands_are_not_changed():
    x, y = SOME.copy(), OTHERS.copy()
    combine(F, x, y), combine_unordered(F, x, y), of_integers(x), to_integers(x)
    assert (x == SOME).all() and (y == OTHERS).all()
