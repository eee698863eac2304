"""Stores of kernels as native text: what the compiler assumes of code that it cannot read.

Takes: a TENSOR program that calls kernels written by hand, the language of a target, and choices. Gives: the program with some
plain Stores of its kernels as Customs that store the same. Spec: Codegen/Custom; R166 (kernels written by hand), R168 (Ins and
Custom on a target).
"""

from __future__ import annotations

from uops.backends.testing.native_text import text_that_stores
from uops.spec.choices import ChoiceSource
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CustomArg
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import EFFECT_GROUPS, Op
from uops.spec.ir.scope import base_memory, strip_afters

#: Roots of the bodies of kernels that are graphs.
_ROOTS = EFFECT_GROUPS | {Op.END, Op.STORE}


def replace_stores_of_kernels_by_text(graph: UOp, language: str, draw: ChoiceSource) -> UOp | None:
    """Return the program with some Stores of its kernels as text of a language; None if it has no plain Store of a kernel."""
    order = toposort(graph)
    stores = dict.fromkeys(u for call in order if call.op is Op.CALL for u in _list_plain_stores(call.body))
    chosen = {u for u in stores if draw.chance(60)} or set(list(stores)[:1])
    done: dict[UOp, UOp] = {}
    for u in order:
        src = tuple([done[s] for s in u.src])
        if u in chosen:
            text = text_that_stores(u.value.dtype).in_language(language)
            done[u] = UOp(Op.CUSTOM, src, CustomArg(text, dt.void))
        else:
            done[u] = u if src == u.src else u.replace(src=src)
    return done[graph] if chosen else None


def _list_plain_stores(body: UOp) -> list[UOp]:
    """Return the Stores of a kernel's graph that text for scalars expresses (R168); none of any other body."""
    order = toposort(body) if body.op in _ROOTS else []
    is_kernel = any(u.op is Op.RANGE for u in order) and not any(u.op is Op.WMMA for u in order)
    return [u for u in order if _is_plain_store(u)] if is_kernel else []


def _is_plain_store(u: UOp) -> bool:
    """Return True for a Store of a scalar to one element, without a gate."""
    if u.op is not Op.STORE or u.gate is not None or u.value.shape or u.value.dtype is dt.index:
        return False
    reference = strip_afters(u.buffer)
    return reference.op is Op.INDEX and not reference.shape and base_memory(reference).dtype is u.value.dtype
