"""A target whose toolchain's output is kept in the cache on disk."""

from __future__ import annotations

import copy
from abc import abstractmethod

from uops.backends.cache import ObjectCache
from uops.compiler.target import Ability, Target


class CachedTarget(Target):
    """A target that looks a text up in `store` before it runs the toolchain. A subclass runs it in `make_binary`."""

    abilities = frozenset({Ability.CODE_CACHE})
    store: ObjectCache

    def list_variants(self, store: ObjectCache) -> list[CachedTarget]:
        """Return this target on another store, and targets of other settings, whose objects must not serve for its texts."""
        same = copy.copy(self)
        same.store = store
        return [same]

    @abstractmethod
    def make_binary(self, source: str) -> bytes:
        """Run the toolchain on a text."""

    def is_usable(self, binary: bytes) -> bool:
        """Return False for a binary that is known not to load, which is then made anew."""
        return True

    def compile(self, source: str) -> bytes:
        """Return the binary of a text, from the cache if it has it."""
        return self.store.get_or_make(lambda: self.make_binary(source), self.key, source, usable=self.is_usable)

    def remake(self, source: str) -> bytes:
        """Make the binary of a text anew, in place of the cached one."""
        return self.store.remake(lambda: self.make_binary(source), self.key, source)
