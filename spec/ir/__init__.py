"""The language: nodes, ops, dtypes, args, axes and scopes, how nodes are built, and the `.uops` text.

`derive` has the rules by which nodes get their properties. Importing any module of this package loads them, and the text by which
nodes cross processes.
"""

import uops.spec.ir.derive
import uops.spec.ir.text  # noqa: F401 - registers how nodes are pickled
