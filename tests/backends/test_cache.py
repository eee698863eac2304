"""The object cache: keys, damage, concurrency, bounds, and that it never stands in the way."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import uops
from uops.backends import cache
from uops.backends.cache import ObjectCache, digest_key, directory
from uops.spec.untrusted import SCRATCH, seal

NAME = digest_key("a kernel")
PAYLOAD = bytes(range(256)) * 20


@pytest.fixture
def store(tmp_path: Path) -> ObjectCache:
    return ObjectCache(tmp_path / "objects")


def stored(store: ObjectCache) -> Path:
    assert store.root is not None
    return store.root / f"{NAME}.obj"


def test_what_was_put_is_found_by_another_cache_on_the_folder(store: ObjectCache) -> None:
    assert store.get(NAME) is None
    store.put(NAME, PAYLOAD)
    assert ObjectCache(store.root).get(NAME) == PAYLOAD
    assert (store.hits, store.misses) == (0, 1)
    assert [p.name for p in stored(store).parent.iterdir()] == [f"{NAME}.obj"]


def test_a_key_depends_on_every_part_and_on_their_borders() -> None:
    assert (
        len({digest_key("ab", "c"), digest_key("a", "bc"), digest_key("abc"), digest_key("ab", "c", ""), digest_key("AB", "c")})
        == 5
    )
    assert digest_key("x", "y") == digest_key(b"x", "y")


def test_a_key_depends_on_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest_key("x")
    monkeypatch.setattr(cache, "_MAGIC", b"uops-object-999\n")
    assert digest_key("x") != before


DAMAGE = {
    "empty": lambda b: b"",
    "cut in the kind": lambda b: b[:5],
    "cut in the digest": lambda b: b[:20],
    "without a payload": lambda b: b[: b.index(b"\n") + 1],
    "cut by a byte": lambda b: b[:-1],
    "longer by a byte": lambda b: b + b"\0",
    "zeroed": lambda b: bytes(len(b)),
    "a bit of the payload": lambda b: b[:-1] + bytes([b[-1] ^ 1]),
    "a bit of the digest": lambda b: b[:20] + bytes([b[20] ^ 1]) + b[21:],
    "another schema": lambda b: b.replace(b"uops object 2 ", b"uops object 1 "),
    "another object's": lambda b: seal("object", 2, digest_key("another kernel"), PAYLOAD),
    "of another kind": lambda b: seal("schedule", 2, NAME, PAYLOAD),
    "text": lambda b: b"not an object\n",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_a_miss_and_is_replaced(store: ObjectCache, damage: str) -> None:
    store.put(NAME, PAYLOAD)
    whole = stored(store).read_bytes()
    broken = DAMAGE[damage](whole)
    assert broken != whole
    stored(store).write_bytes(broken)
    assert store.get(NAME) is None
    assert not stored(store).exists()
    store.put(NAME, PAYLOAD)
    assert store.get(NAME) == PAYLOAD


def test_an_empty_object_is_one(store: ObjectCache) -> None:
    store.put(NAME, b"")
    assert stored(store).read_bytes() == seal("object", 2, NAME, b"")
    assert store.get(NAME) == b""


def test_an_object_under_the_name_of_another_is_a_miss(store: ObjectCache) -> None:
    other = digest_key("another kernel")
    store.put(other, PAYLOAD)
    shutil.copy(store.root / f"{other}.obj", stored(store))
    assert store.get(NAME) is None and not stored(store).exists()
    assert store.get(other) == PAYLOAD


def test_what_is_of_no_use_is_made_again(store: ObjectCache) -> None:
    store.put(digest_key("kernel"), b"old")
    assert store.get_or_make(lambda: b"new", "kernel", usable=lambda payload: payload != b"old") == b"new"
    assert store.get(digest_key("kernel")) == b"new"


def test_what_is_of_no_use_is_a_miss_and_is_removed(store: ObjectCache) -> None:
    name = digest_key("kernel")
    store.put(name, b"bad")

    def fail() -> bytes:
        raise ValueError("no compiler")

    with pytest.raises(ValueError, match="no compiler"):
        store.get_or_make(fail, "kernel", usable=lambda payload: False)
    assert (store.hits, store.misses) == (0, 1)
    assert store.root is not None and not (store.root / f"{name}.obj").exists()


def test_something_that_is_no_file_is_a_miss_at_once_and_is_replaced(store: ObjectCache, tmp_path: Path) -> None:
    store.put(NAME, PAYLOAD)
    outside = tmp_path / "outside"
    outside.write_bytes(seal("object", 2, NAME, b"of another"))
    for make in (os.mkdir, os.mkfifo, lambda p: os.symlink("/dev/zero", p), lambda p: os.symlink(outside, p)):
        if stored(store).is_dir():
            stored(store).rmdir()
        stored(store).unlink(missing_ok=True)
        make(stored(store))
        assert store.get(NAME) is None
        store.put(NAME, PAYLOAD)
        assert store.get(NAME) == (None if stored(store).is_dir() else PAYLOAD)
    assert outside.read_bytes() == seal("object", 2, NAME, b"of another")


@pytest.mark.parametrize("kind", ["file", "below a file", "writable by others", "writable by its group"])
def test_a_folder_that_cannot_be_used_only_costs_the_cache(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "x"
    if kind.startswith("writable"):
        root.mkdir()
        root.chmod(0o777 if kind == "writable by others" else 0o770)
    else:
        root.write_text("")
        root = root / "y" if kind == "below a file" else root
    store = ObjectCache(root)
    store.put(NAME, PAYLOAD)
    assert store.get(NAME) is None
    assert not kind.startswith("writable") or list(root.iterdir()) == []


def test_a_read_only_folder_still_serves_and_never_fails(store: ObjectCache, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(NAME, PAYLOAD)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("read-only file system")

    opened = open
    monkeypatch.setattr("builtins.open", lambda p, mode="r", *a, **k: refuse() if mode == "xb" else opened(p, mode, *a, **k))
    for name in ("replace", "unlink", "utime"):
        monkeypatch.setattr(os, name, refuse)
    other = digest_key("another")
    store.put(other, PAYLOAD)
    assert store.get(other) is None
    assert store.get(NAME) == PAYLOAD


def test_a_failing_rename_leaves_no_scratch_file(store: ObjectCache, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(digest_key("first"), PAYLOAD)
    before = set(stored(store).parent.iterdir())

    def full(*_: object) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(os, "replace", full)
    store.put(NAME, PAYLOAD)
    assert set(stored(store).parent.iterdir()) == before


def test_the_least_recently_used_objects_go_first(tmp_path: Path) -> None:
    store = ObjectCache(tmp_path / "objects", limit=10 * 8192)
    names = [digest_key(str(k)) for k in range(12)]
    for k, name in enumerate(names):
        store.put(name, bytes(8192 - len(seal("object", 2, name, b""))))
        os.utime(store.root / f"{name}.obj", (1000.0 + k, 1000.0 + k))
    assert store.get(names[0]) is not None  # a use makes it the youngest
    store.evict_to_three_quarters_and_remove_stale_scratch()
    left = [k for k, name in enumerate(names) if (store.root / f"{name}.obj").exists()]
    assert 0 in left
    assert left[1:] == list(range(12 - len(left) + 1, 12))
    assert sum(p.stat().st_size for p in store.root.iterdir()) <= store.limit * 3 // 4


def test_a_sweep_takes_old_scratch_files_only(store: ObjectCache) -> None:
    store.put(NAME, PAYLOAD)
    old, new, later = (stored(store).with_suffix(f".{k}{SCRATCH}") for k in range(3))
    for path in (old, new, later):
        path.write_bytes(b"x")
    os.utime(old, (0, 0))
    os.utime(later, (2**33, 2**33))  # the clock was set back since
    store.evict_to_three_quarters_and_remove_stale_scratch()
    assert (old.exists(), new.exists(), later.exists(), stored(store).exists()) == (False, True, False, True)


def test_after_the_clock_was_set_back_what_is_used_stays(tmp_path: Path) -> None:
    store = ObjectCache(tmp_path / "objects", limit=10 * 8192)
    names = [digest_key(str(k)) for k in range(12)]
    for k, name in enumerate(names):
        store.put(name, bytes(7000))
        os.utime(store.root / f"{name}.obj", (2**33 + k, 2**33 + k))
    assert store.get(names[0]) is not None
    store.evict_to_three_quarters_and_remove_stale_scratch()
    assert (store.root / f"{names[0]}.obj").exists()


HAMMER = """
import sys, random
from pathlib import Path
from uops.backends.cache import ObjectCache, digest_key
root, seed = Path(sys.argv[1]), int(sys.argv[2])
draw, store = random.Random(seed), ObjectCache(root, limit=200_000)
payload = lambda k: bytes([k]) * (3000 + 500 * k)
bad = 0
for turn in range(600):
    k = draw.randrange(40)
    name = digest_key(str(k))
    found = store.get(name)
    bad += found is not None and found != payload(k)
    if found is None or draw.random() < 0.3:
        store.put(name, payload(k))
    if draw.random() < 0.05:
        path = root / (name + ".obj")
        try:
            data = path.read_bytes()
            path.write_bytes(data[: draw.randrange(len(data) + 1)])
        except OSError:
            pass
    if draw.random() < 0.02:
        store.evict_to_three_quarters_and_remove_stale_scratch()
print(bad, store.hits)
"""


def test_processes_that_hammer_one_folder_only_ever_read_whole_objects(tmp_path: Path) -> None:
    root = tmp_path / "objects"
    environment = {**os.environ, "PYTHONPATH": str(Path(uops.__file__).parents[1])}
    command = [sys.executable, "-c", HAMMER, str(root)]
    seeds = [str(random.randrange(1 << 30)) for _ in range(4)]
    running = [subprocess.Popen([*command, s], env=environment, stdout=subprocess.PIPE, text=True) for s in seeds]
    results = [p.communicate()[0].split() for p in running]
    assert [p.returncode for p in running] == [0] * 4, seeds
    assert all(bad == "0" and int(hits) > 0 for bad, hits in results), (seeds, results)
    assert [p.name for p in root.iterdir() if p.name.endswith(SCRATCH)] == []


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"UOPS_CACHE": "0", "UOPS_CACHE_DIR": "/c", "HOME": "/h"}, None),
        ({"UOPS_CACHE": "1", "UOPS_CACHE_DIR": "/c", "HOME": "/h"}, "/c"),
        ({"UOPS_CACHE_DIR": "/c", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/c"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/uops"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/uops"),
        ({"HOME": "/h"}, "/h/.cache/uops"),
        ({}, None),
    ],
)
def test_where_the_cache_is(environment: dict[str, str], expected: str | None) -> None:
    assert directory(environment) == (None if expected is None else Path(expected))


def test_no_folder_stores_nothing() -> None:
    store = ObjectCache(None)
    store.put(NAME, PAYLOAD)
    assert store.get(NAME) is None


def test_what_is_made_is_named_by_its_parts(tmp_path: Path) -> None:
    store, made = ObjectCache(tmp_path), []

    def make() -> bytes:
        made.append(1)
        return b"%d" % len(made)

    assert [store.get_or_make(make, *parts) for parts in (("ab", "c"), ("a", "bc"), ("ab", "c"))] == [b"1", b"2", b"1"]
    nowhere = ObjectCache(None)
    assert [nowhere.get_or_make(make, "ab", "c") for _ in range(2)] == [b"3", b"4"]
    assert (store.hits, store.misses, nowhere.misses) == (1, 2, 2)
