"""The threads that share the loop of a kernel: one pool per process, in LLVM IR text on the C library's threads.

`uops_parallel(kernel, buffers, scalars, extent, chunks, threads)` calls `kernel(buffers, scalars, begin, end)` on pieces that make
up [0, extent), at most `chunks` of them, by at most `threads` threads, the caller among them; it returns when all are done. Threads
are made when they are first needed and then stay: one that has nothing to do looks for work for a while, then sleeps. One caller
has the pool at a time; whoever finds it taken does all the work alone, so that there are never more threads at work than callers
and cores. `uops_forked` makes the pool new in the child of a fork, where its threads are not.

The job is one word, so that who takes a piece cannot take it from another job than he saw: the number of the next piece, the
number of pieces, the number of threads that may help. What else the job is, lies beside it; it is changed only when all pieces of
the job before are done, hence read safely by who has taken a piece.
"""

from __future__ import annotations

from uops.backends.llvm.native import Code, Typed

PARALLEL, FORKED = "uops_parallel", "uops_forked"

#: Bits of the number of a piece, of their count, and where the number of threads begins.
_PIECE = 20
_MOST_PIECES = (1 << _PIECE) - 1
_MOST_THREADS = 1 << 12
#: Pieces per thread: enough to even out what threads are given and how fast they are.
PIECES_PER_THREAD = 8
#: Looks for work, or for the end of it, before giving up the processor; each takes about 40 ns.
_LOOKS = 1500
_STACK_BYTES = 8 << 20
_SIG_SETMASK = 2
_DETACHED = 1
#: What tells a processor that a loop waits: an intrinsic and its operands.
_PAUSE: dict[str, tuple[str, tuple[Typed, ...]]] = {
    "x86_64": ("llvm.x86.sse2.pause", ()),
    "aarch64": ("llvm.aarch64.hint", (("i32", "1"),)),
}


def pool(triple: str) -> tuple[list[Code], list[str]]:
    """The functions and the variables of the pool."""
    machine = triple.partition("-")[0]
    variables = [
        "@job = internal global i64 0, align 128",
        "@work = internal global [4 x i64] zeroinitializer, align 128",  # kernel, buffers, scalars, extent
        "@done = internal global i64 0, align 128",  # pieces of the job
        "@sleeping = internal global i64 0, align 128",
        "@taken = internal global i64 0, align 128",  # by a caller
        "@workers = internal global i64 0, align 8",
        "@mutex = internal global [16 x i64] zeroinitializer, align 64",
        "@wake = internal global [16 x i64] zeroinitializer, align 64",
    ]
    return [_parallel(machine), _pieces(), _there_is(), _worker(machine), _start(), _forked()], variables


def _look(c: Code, name: str) -> str:
    return c.emit(f"load atomic i64, ptr @{name} seq_cst, align 8")


def _set(c: Code, name: str, value: str) -> None:
    c.do(f"store atomic i64 {value}, ptr @{name} seq_cst, align 8")


def _add(c: Code, name: str, value: int) -> None:
    c.emit(f"atomicrmw add ptr @{name}, i64 {value} seq_cst")


def _swap(c: Code, name: str, old: str, new: str) -> str:
    """Whether it held `old`, and holds `new` now."""
    return c.emit(f"extractvalue {{ i64, i1 }} {c.emit(f'cmpxchg ptr @{name}, i64 {old}, i64 {new} seq_cst seq_cst')}, 1")


def _least(c: Code, x: str, y: str | int) -> str:
    return c.choose(c.test("slt", x, y), "i64", x, y)


def _pause(c: Code, machine: str) -> None:
    if machine in _PAUSE:
        name, operands = _PAUSE[machine]
        c.call(name, "void", *operands)


def _parallel(machine: str) -> Code:
    counts = ("extent", "chunks", "threads")
    c = Code(PARALLEL, "void", *(("ptr", n) for n in ("kernel", "buffers", "scalars")), *(("i64", n) for n in counts))
    threads = _least(c, "%threads", _MOST_THREADS)
    useful = _least(c, _least(c, "%chunks", "%extent"), c.op("mul", threads, PIECES_PER_THREAD))
    pieces = _least(c, useful, _MOST_PIECES)
    c.unless(c.test("sgt", threads, 1), "%alone")
    c.unless(c.test("sgt", pieces, 1), "%alone")
    c.unless(_swap(c, "taken", "0", "1"), "%alone")
    with c.forever() as enough:
        n = c.word("@workers", 0)
        c.unless(c.test("slt", n, c.op("sub", threads, 1)), enough)
        c.unless(c.call("start", "i1", ("i64", n)), enough)
        c.store("i64", c.op("add", n, 1), "@workers")
    for k, value in enumerate(("kernel", "buffers", "scalars")):
        c.store("ptr", f"%{value}", "@work", 8 * k)
    c.store("i64", "%extent", "@work", 24)
    _set(c, "done", "0")
    _set(c, "job", c.op("or", c.op("shl", pieces, _PIECE), c.op("shl", threads, 2 * _PIECE)))
    with c.when(c.test("sgt", _look(c, "sleeping"), 0)):
        c.call("pthread_mutex_lock", "i32", ("ptr", "@mutex"))
        c.call("pthread_cond_broadcast", "i32", ("ptr", "@wake"))
        c.call("pthread_mutex_unlock", "i32", ("ptr", "@mutex"))
    c.call("pieces", "void", ("i64", "0"))
    looks = c.local("i64", 0)
    with c.forever() as over:
        c.unless(c.test("slt", _look(c, "done"), pieces), over)
        _pause(c, machine)
        c.store("i64", c.op("add", c.load("i64", looks), 1), looks)
        with c.when(c.test("sgt", c.load("i64", looks), _LOOKS)):
            c.call("sched_yield", "i32")
    _set(c, "taken", "0")
    c.leave()
    c.block("%alone")
    c.through("%kernel", "void", ("ptr", "%buffers"), ("ptr", "%scalars"), ("i64", "0"), ("i64", "%extent"))
    c.leave()
    return c


def _there_is() -> Code:
    """Whether thread `me` may take a piece of the job `word`."""
    c = Code("there_is", "i1", ("i64", "me"), ("i64", "word"), internal=True)
    piece = c.op("and", "%word", _MOST_PIECES)
    pieces = c.op("and", c.op("lshr", "%word", _PIECE), _MOST_PIECES)
    invited = c.test("slt", "%me", c.op("lshr", "%word", 2 * _PIECE))
    c.leave(c.op("and", c.test("slt", piece, pieces), invited, "i1"))
    return c


def _pieces() -> Code:
    """Do pieces of the job as long as there are."""
    c = Code("pieces", "void", ("i64", "me"), internal=True)
    with c.forever() as none:
        word = _look(c, "job")
        c.unless(c.call("there_is", "i1", ("i64", "%me"), ("i64", word)), none)
        with c.when(_swap(c, "job", word, c.op("add", word, 1))):
            piece = c.op("and", word, _MOST_PIECES)
            pieces = c.op("and", c.op("lshr", word, _PIECE), _MOST_PIECES)
            begin = _bound(c, piece, pieces)
            end = _bound(c, c.op("add", piece, 1), pieces)
            tables = (("ptr", c.pointer("@work", 1)), ("ptr", c.pointer("@work", 2)))
            c.through(c.pointer("@work", 0), "void", *tables, ("i64", begin), ("i64", end))
            _add(c, "done", 1)
    c.leave()
    return c


def _bound(c: Code, piece: str, pieces: str) -> str:
    """Where a piece begins: they differ by one iteration at most. The product of both may not fit a word, so: q * p + min(p, r)."""
    extent = c.word("@work", 3)
    whole, rest = c.op("udiv", extent, pieces), c.op("urem", extent, pieces)
    return c.op("add", c.op("mul", whole, piece), _least(c, piece, rest))


def _worker(machine: str) -> Code:
    """The life of a thread of the pool, whose number is its argument."""
    c = Code("worker", "ptr", ("ptr", "number"), internal=True)
    me, looks = c.emit("ptrtoint ptr %number to i64"), c.local("i64", 0)
    with c.forever():
        c.call("pieces", "void", ("i64", me))
        c.store("i64", 0, looks)
        with c.forever() as next_:
            with c.when(c.call("there_is", "i1", ("i64", me), ("i64", _look(c, "job")))):
                c.jump(next_)
            n = c.load("i64", looks)
            with c.when(c.test("sgt", n, _LOOKS)):
                c.call("pthread_mutex_lock", "i32", ("ptr", "@mutex"))
                _add(c, "sleeping", 1)
                with c.forever() as woken:
                    with c.when(c.call("there_is", "i1", ("i64", me), ("i64", _look(c, "job")))):
                        c.jump(woken)
                    c.call("pthread_cond_wait", "i32", ("ptr", "@wake"), ("ptr", "@mutex"))
                _add(c, "sleeping", -1)
                c.call("pthread_mutex_unlock", "i32", ("ptr", "@mutex"))
                c.jump(next_)
            _pause(c, machine)
            c.store("i64", c.op("add", n, 1), looks)
    c.leave("null")
    return c


def _start() -> Code:
    """Make thread number `n` + 1, which no signal is delivered to; whether that was possible."""
    c = Code("start", "i1", ("i64", "n"), internal=True)
    attributes, thread, all_, before = (c.table(words) for words in (16, 1, 32, 32))
    c.call("sigfillset", "i32", ("ptr", all_))
    c.call("pthread_sigmask", "i32", ("i32", str(_SIG_SETMASK)), ("ptr", all_), ("ptr", before))
    c.call("pthread_attr_init", "i32", ("ptr", attributes))
    c.call("pthread_attr_setstacksize", "i32", ("ptr", attributes), ("i64", str(_STACK_BYTES)))
    c.call("pthread_attr_setdetachstate", "i32", ("ptr", attributes), ("i32", str(_DETACHED)))
    number = c.emit(f"inttoptr i64 {c.op('add', '%n', 1)} to ptr")
    failed = c.call("pthread_create", "i32", ("ptr", thread), ("ptr", attributes), ("ptr", "@worker"), ("ptr", number))
    c.call("pthread_attr_destroy", "i32", ("ptr", attributes))
    c.call("pthread_sigmask", "i32", ("i32", str(_SIG_SETMASK)), ("ptr", before), ("ptr", "null"))
    c.leave(c.test("eq", failed, 0, "i32"))
    return c


def _forked() -> Code:
    c = Code(FORKED, "void")
    for name in ("job", "done", "sleeping", "taken"):
        _set(c, name, "0")
    c.store("i64", 0, "@workers")
    c.call("pthread_mutex_init", "i32", ("ptr", "@mutex"), ("ptr", "null"))
    c.call("pthread_cond_init", "i32", ("ptr", "@wake"), ("ptr", "null"))
    c.leave()
    return c
