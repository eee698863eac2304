"""What is particular to the platforms of OpenCL that are known, as data. Any other platform is taken as the standard describes it.

Takes: the name of a platform. Gives: its `PlatformTraits`.
"""

from __future__ import annotations

from dataclasses import dataclass

from uops.spec.ir.ops import Op

POCL = "Portable Computing Language"
OCLGRIND = "Oclgrind"


@dataclass(frozen=True, slots=True)
class PlatformTraits:
    """The needs of a platform beyond the standard.

    - `declares_builtins`: a text is built without the header of all builtin functions, whose declarations it brings along.
    - `least_private_bytes`: the least size of a private array in a kernel with barriers.
    - `has_exact_trunc`: the builtin `trunc` is used.
    - `vector_lanes`: the lengths of vectors that loads and stores use.
    - `numbers_by_one_dimension`: all loops of a launch share one dimension, so neighbouring work-items touch neighbouring elements.
    - `float32_by_float64`: ops of float32 that it rounds wrongly, whatever it claims.
    - `non_affine_loop_hint`: a line before loops that read at positions which are no sums of multiples of their counters.
    - `options`: options of its compiler, beside those of every platform.
    - `judges_accesses`: the device reports races and accesses out of bounds. It is taken only by name, as it is an emulator.
    """

    declares_builtins: bool = False
    least_private_bytes: int = 0
    has_exact_trunc: bool = True
    vector_lanes: tuple[int, ...] = (2, 4, 8, 16)
    numbers_by_one_dimension: bool = True
    float32_by_float64: frozenset[Op] = frozenset()
    non_affine_loop_hint: str = ""
    options: tuple[str, ...] = ()
    judges_accesses: bool = False


TRAITS = {
    POCL: PlatformTraits(
        # Clang's header of all functions of OpenCL C takes nine tenths of a build.
        declares_builtins=True,
        # PoCL 3.0 takes a smaller array that is cleared, and lives across a barrier, for one that all work-items share (P02).
        least_private_bytes=16,
        # PoCL 3.0 converts to an integer inside of it, which is undefined for a NaN that its compiler has folded.
        has_exact_trunc=False,
        # Its compiler makes vectors of several work-items, and those of one cost 2 to 8 %. Builtins of 16 lanes end the process.
        vector_lanes=(),
        # Its loops over work-items want the innermost range in a dimension of its own.
        numbers_by_one_dimension=False,
        # Its vectorizer takes (3 * k) % 8 for 3 * k in a loop of 5 to 7 iterations, and reads out of bounds (P03).
        non_affine_loop_hint="#pragma clang loop vectorize(disable)",
    ),
    OCLGRIND: PlatformTraits(
        # Oclgrind 21.10 converts an integer to float64 first, and rounds twice (O01).
        float32_by_float64=frozenset({Op.CAST}),
        # Its compiler makes instructions that Oclgrind 21.10 does not have, such as `llvm.fshl` (O02). Without passes, Oclgrind
        # also judges accesses that they would remove.
        options=("-cl-opt-disable",),
        judges_accesses=True,
    ),
}
PLAIN = PlatformTraits()


def find_traits(platform: str) -> PlatformTraits:
    """Return the traits of the platform of that name."""
    return TRAITS.get(platform, PLAIN)
