"""Values compared by fingerprints: two texts are evaluated on terms instead of numbers, and their memory must hold the same terms.

Takes: the body of a kernel before scheduling, and its instructions. Gives: the first element that differs, or the reason why the
texts cannot be evaluated so.

A value is the term that computes it, from constants and from the elements that the kernel is given. A fingerprint stands for a
term. It has 64 bits, which each operation mixes from those of its operands. Equal terms have equal fingerprints. Different terms
have different ones but for chance, below 2^-40 for a kernel of a million elements. Each doubling of the number of times that a sum
takes one value doubles that; at most 65,536 times are evaluated.

- Integers that depend on loops alone (positions, conditions of padding) are computed, not mixed (`integers`).
- Operands of commutative operations are unordered. Sums and products of integers are polynomials. No float operation is folded.
- A reduction is the multiset of its terms, without identities (R32: any order of a Reduce). So is a chain of Add, Mul or Max on an
  accumulator. Its loops may be split, reordered and kept in several accumulators. `SumLaws` has what else R32 allows.
- A Buffer holds an element of its own everywhere until it is stored, equal to nothing else (R61, fresh buffers).

Every loop is an axis of NumPy arrays, so all iterations are evaluated at once. In a large kernel, a
symbolic counter stands for the iterations of loops that exchange no values, or only add to reductions (`representatives`). The body
is then evaluated at the elements that are stored. A kernel whose iterations exchange values in another way is not decided.

- `mixing`: fingerprints
- `integers`, `bounds`: integers of loops, and the bounds of all integers
- `terms`, `operations`: values, and the operations on them
- `text`, `memory`, `sharing`, `evaluate`: the nodes of a kernel, what its memory holds, which iterations share it, and the kernel
- `windows`: sums of sliding windows
- `slices`, `representatives`: loops of which few iterations are evaluated
- `elements`, `compare`: a body at given elements, and two texts of one kernel
"""
