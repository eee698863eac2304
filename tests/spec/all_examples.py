"""The whole registry: core rows, bestiary rows, dialects."""

import bestiary_examples  # noqa: F401 - registers
import dialect_examples  # noqa: F401 - registers
from claim_examples import EXAMPLES, GOOD, schema_claims
from uops.spec.ops import Op

schema_claims(Op)

__all__ = ["EXAMPLES", "GOOD"]
