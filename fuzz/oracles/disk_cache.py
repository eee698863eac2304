"""The oracle of the cache on disk: it has objects of other programs, settings and features, and somebody harms its files.

Takes: a target whose machine code is cached, a program, and choices. Gives: the first `Fault`: a wrong result, or an object from
the cache that is not what the toolchain makes of the text. Objects are kept from case to case (`KeptObjects`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from uops.backends.cache import ObjectCache
from uops.backends.cached_target import CachedTarget
from uops.backends.conformance.stage_judge import Fault
from uops.compiler.config import Config
from uops.compiler.runtime.program import compile
from uops.fuzz.generate.draw import draw_permutation
from uops.spec.choices import ChoiceSource
from uops.spec.ir.node import UOp
from uops.spec.result import Result

#: Number of objects that are kept from case to case.
_KEPT = 48


class KeptObjects:
    """The files of a cache, which are in a folder during a case and in memory between cases, so that no process leaves a folder."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    @contextmanager
    def in_folder(self) -> Iterator[Path]:
        """Write the files to a folder; at the end, keep its latest ones."""
        with tempfile.TemporaryDirectory(prefix="uops-cache-") as folder:
            root = Path(folder) / "objects"
            root.mkdir(mode=0o700)
            for name, content in self._files.items():
                (root / name).write_bytes(content)
            try:
                yield root
            finally:
                new = {f.name: f.read_bytes() for f in _list_files(root) if f.name not in self._files}
                old = {name: content for name, content in self._files.items() if (root / name).is_file()}
                self._files = dict(list({**old, **new}.items())[-_KEPT:])


def find_first_fault_with_disk_cache(
    graph: UOp, inputs: Mapping[str, Any], target: CachedTarget, kept: KeptObjects,
    judge: Callable[[Callable[[], Result]], Fault | None], draw: ChoiceSource,
) -> Fault | None:  # fmt: skip
    """Compile and run a program on the variants of a target, which share a cache, and on the first once more with harmed files."""
    with kept.in_folder() as root:
        count = len(target.list_variants(ObjectCache(root)))
        first, *others = draw_permutation(draw, count)
        for number, is_harmed in ((first, False), *((k, False) for k in others[:1]), (first, True)):
            if is_harmed:
                draw.choice(_HARMS)(root, draw)
            variant = target.list_variants(ObjectCache(root))[number]  # as a new process has it
            if (fault := _run_and_compare_objects(graph, inputs, variant, judge)) is not None:
                return fault
    return None


def _run_and_compare_objects(
    graph: UOp, inputs: Mapping[str, Any], target: CachedTarget, judge: Callable[[Callable[[], Result]], Fault | None]
) -> Fault | None:
    """Run a program, and compare the object of each of its texts with the one that the toolchain makes now."""
    texts: dict[str, bytes] = {}
    compile_text = target.compile

    def compile_and_record(source: str) -> bytes:
        texts[source] = compile_text(source)
        return texts[source]

    target.compile = compile_and_record  # type: ignore[method-assign]
    fault = judge(lambda: compile(graph, target, Config(reuse=False))(inputs))
    if fault is not None:
        return fault
    for k, (source, binary) in enumerate(texts.items()):
        if binary != target.make_binary(source):
            return Fault("stale", f"kernel {k}: the object in the cache is not what {target.name} makes of the text")
    return None


# Harm


def _list_files(root: Path) -> list[Path]:
    return sorted(f for f in root.iterdir() if f.is_file())


def _exchange_two_files(root: Path, draw: ChoiceSource) -> None:
    files = _list_files(root)
    if len(files) > 1:
        a, b = (files[k] for k in draw_permutation(draw, len(files))[:2])
        first, second = a.read_bytes(), b.read_bytes()
        a.write_bytes(second)
        b.write_bytes(first)


def _exchange_all_files(root: Path, draw: ChoiceSource) -> None:
    """Give each file the content of the next one."""
    files = _list_files(root)
    contents = [f.read_bytes() for f in files]
    for f, content in zip(files, contents[1:] + contents[:1], strict=True):
        f.write_bytes(content)


def _truncate_files(root: Path, draw: ChoiceSource) -> None:
    for f in _list_files(root):
        content = f.read_bytes()
        f.write_bytes(content[: draw.integer(0, len(content))])


def _change_a_byte_of_each_file(root: Path, draw: ChoiceSource) -> None:
    """Change a byte of each file that an earlier case has not emptied."""
    for f in _list_files(root):
        content = bytearray(f.read_bytes())
        if not content:
            continue
        content[draw.integer(0, len(content) - 1)] ^= 1 << draw.integer(0, 7)
        f.write_bytes(content)


#: What happens to the files of a cache; one of these is drawn.
_HARMS = (_exchange_two_files, _exchange_all_files, _truncate_files, _change_a_byte_of_each_file)

__all__ = ["KeptObjects", "find_first_fault_with_disk_cache"]
