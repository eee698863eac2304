"""The language: nodes, ops, dtypes, args, axes, scopes, the builders of nodes and the `.uops` text format.

`derive` has the rules of the derived properties. Importing any module of this package loads them and registers how nodes are
pickled.
"""

import uops.spec.ir.derive
import uops.spec.ir.text  # noqa: F401 - registers how nodes are pickled
