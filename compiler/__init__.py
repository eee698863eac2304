"""The compiler: stages from tensor programs to machine code, each verified.

`compile(graph, target)` gives a callable on NumPy arrays. `lower` and `stages` give the graph at any stage, which
`uops.spec.ir.text.show` prints. `uops.compiler.target` says what a target is; backends supply them. Importing this package loads
none of it: each name loads its module when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uops.compiler.config import Config
    from uops.compiler.passes.callify.callify import outputs
    from uops.compiler.passes.callify.precompiled import ProgramOutput
    from uops.compiler.pipeline import PIPELINE, STAGES, Pass, lower, stages
    from uops.compiler.runtime.program import Compiled, compile
    from uops.compiler.target import PLAIN_DTYPES, PLAIN_OPS, Kernel, Target

__all__ = [
    "compile",
    "Compiled",
    "Config",
    "lower",
    "stages",
    "STAGES",
    "PIPELINE",
    "Pass",
    "outputs",
    "ProgramOutput",
    "Target",
    "Kernel",
    "PLAIN_OPS",
    "PLAIN_DTYPES",
]

# fmt: off
_HOME = {
    "compile":       "runtime.program",
    "Compiled":      "runtime.program",
    "Config":        "config",
    "lower":         "pipeline",
    "stages":        "pipeline",
    "STAGES":        "pipeline",
    "PIPELINE":      "pipeline",
    "Pass":          "pipeline",
    "outputs":       "passes.callify.callify",
    "ProgramOutput": "passes.callify.precompiled",
    "Target":        "target",
    "Kernel":        "target",
    "PLAIN_OPS":     "target",
    "PLAIN_DTYPES":  "target",
}
# fmt: on

if not TYPE_CHECKING:  # a type checker reads the imports above; __getattr__ would make it accept every name

    def __getattr__(name):
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
