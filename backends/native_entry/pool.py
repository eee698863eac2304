"""The threads that share the loop of a kernel: one pool per process, in LLVM IR text on the C library's threads.

`uops_parallel(kernel, buffers, scalars, extent, chunks, threads)` calls `kernel(buffers, scalars, begin, end)` on pieces that
make up [0, extent), and returns when all are done. It uses at most `chunks` pieces and at most `threads` threads, the caller
among them. Threads are started on first use and then stay. An idle thread polls for work for a while, then sleeps. One caller
has the pool at a time. A caller that finds it taken does all the work alone, so there are never more running threads than
callers and cores. `uops_forked` resets the pool in the child of a fork, which lacks its threads.

A job is one word: the number of the next piece, the number of pieces, and the number of threads that may help. So a thread cannot
take a piece of another job than it read. The rest of the job is stored beside it. It changes only once all pieces of the job before
are done, so a thread that has taken a piece may read it.
"""

from __future__ import annotations

from uops.backends.native_entry.ir import IRFunction, Typed

PARALLEL, FORKED = "uops_parallel", "uops_forked"

#: Bits of a piece's number and of the count of pieces in a job's word; the number of threads is above both.
_PIECE = 20
_MOST_PIECES = (1 << _PIECE) - 1
_MOST_THREADS = 1 << 12
#: Pieces per thread, enough to balance threads of different speed and work.
PIECES_PER_THREAD = 8
#: Polls for work, or for its end, before a thread yields the processor; each takes about 40 ns.
_LOOKS = 1500
_STACK_BYTES = 8 << 20
_SIG_SETMASK = 2
_DETACHED = 1
#: Architecture -> the intrinsic of a spin-wait hint, and its operands.
_PAUSE: dict[str, tuple[str, tuple[Typed, ...]]] = {
    "x86_64": ("llvm.x86.sse2.pause", ()),
    "aarch64": ("llvm.aarch64.hint", (("i32", "1"),)),
}


def define_pool_functions_and_globals(triple: str) -> tuple[list[IRFunction], list[str]]:
    """Return the functions and the variables of the pool."""
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
    return [
        _define_run_kernel_on_pool(machine),
        _define_run_pieces(),
        _define_has_piece_for_thread(),
        _define_worker_thread(machine),
        _define_start_thread_with_signals_blocked(),
        _define_reset_after_fork(),
    ], variables


def _atomic_load(c: IRFunction, name: str) -> str:
    return c.emit(f"load atomic i64, ptr @{name} seq_cst, align 8")


def _atomic_store(c: IRFunction, name: str, value: str) -> None:
    c.emit_void(f"store atomic i64 {value}, ptr @{name} seq_cst, align 8")


def _atomic_add(c: IRFunction, name: str, value: int) -> None:
    c.emit(f"atomicrmw add ptr @{name}, i64 {value} seq_cst")


def _compare_exchange(c: IRFunction, name: str, old: str, new: str) -> str:
    """Emit a compare and exchange; return whether the word held `old` and holds `new` now."""
    return c.emit(f"extractvalue {{ i64, i1 }} {c.emit(f'cmpxchg ptr @{name}, i64 {old}, i64 {new} seq_cst seq_cst')}, 1")


def _minimum(c: IRFunction, x: str, y: str | int) -> str:
    return c.select(c.compare("slt", x, y), "i64", x, y)


def _emit_spin_pause(c: IRFunction, machine: str) -> None:
    if machine in _PAUSE:
        name, operands = _PAUSE[machine]
        c.call(name, "void", *operands)


def _define_run_kernel_on_pool(machine: str) -> IRFunction:
    """Define `uops_parallel`."""
    counts = ("extent", "chunks", "threads")
    c = IRFunction(PARALLEL, "void", *(("ptr", n) for n in ("kernel", "buffers", "scalars")), *(("i64", n) for n in counts))
    threads = _minimum(c, "%threads", _MOST_THREADS)
    useful = _minimum(c, _minimum(c, "%chunks", "%extent"), c.binary("mul", threads, PIECES_PER_THREAD))
    pieces = _minimum(c, useful, _MOST_PIECES)
    c.branch_unless(c.compare("sgt", threads, 1), "%alone")
    c.branch_unless(c.compare("sgt", pieces, 1), "%alone")
    c.branch_unless(_compare_exchange(c, "taken", "0", "1"), "%alone")
    with c.endless_loop() as enough:
        n = c.load_word("@workers", 0)
        c.branch_unless(c.compare("slt", n, c.binary("sub", threads, 1)), enough)
        c.branch_unless(c.call("start", "i1", ("i64", n)), enough)
        c.store("i64", c.binary("add", n, 1), "@workers")
    for k, value in enumerate(("kernel", "buffers", "scalars")):
        c.store("ptr", f"%{value}", "@work", 8 * k)
    c.store("i64", "%extent", "@work", 24)
    _atomic_store(c, "done", "0")
    _atomic_store(c, "job", c.binary("or", c.binary("shl", pieces, _PIECE), c.binary("shl", threads, 2 * _PIECE)))
    with c.if_true(c.compare("sgt", _atomic_load(c, "sleeping"), 0)):
        c.call("pthread_mutex_lock", "i32", ("ptr", "@mutex"))
        c.call("pthread_cond_broadcast", "i32", ("ptr", "@wake"))
        c.call("pthread_mutex_unlock", "i32", ("ptr", "@mutex"))
    c.call("pieces", "void", ("i64", "0"))
    looks = c.declare_local("i64", 0)
    with c.endless_loop() as over:
        c.branch_unless(c.compare("slt", _atomic_load(c, "done"), pieces), over)
        _emit_spin_pause(c, machine)
        c.store("i64", c.binary("add", c.load("i64", looks), 1), looks)
        with c.if_true(c.compare("sgt", c.load("i64", looks), _LOOKS)):
            c.call("sched_yield", "i32")
    _atomic_store(c, "taken", "0")
    c.emit_return()
    c.start_block("%alone")
    c.call_address("%kernel", "void", ("ptr", "%buffers"), ("ptr", "%scalars"), ("i64", "0"), ("i64", "%extent"))
    c.emit_return()
    return c


def _define_has_piece_for_thread() -> IRFunction:
    """Define whether thread `me` may take a piece of the job `word`."""
    c = IRFunction("there_is", "i1", ("i64", "me"), ("i64", "word"), internal=True)
    piece = c.binary("and", "%word", _MOST_PIECES)
    pieces = c.binary("and", c.binary("lshr", "%word", _PIECE), _MOST_PIECES)
    invited = c.compare("slt", "%me", c.binary("lshr", "%word", 2 * _PIECE))
    c.emit_return(c.binary("and", c.compare("slt", piece, pieces), invited, "i1"))
    return c


def _define_run_pieces() -> IRFunction:
    """Define the loop that runs pieces of the job until none is left."""
    c = IRFunction("pieces", "void", ("i64", "me"), internal=True)
    with c.endless_loop() as none:
        word = _atomic_load(c, "job")
        c.branch_unless(c.call("there_is", "i1", ("i64", "%me"), ("i64", word)), none)
        with c.if_true(_compare_exchange(c, "job", word, c.binary("add", word, 1))):
            piece = c.binary("and", word, _MOST_PIECES)
            pieces = c.binary("and", c.binary("lshr", word, _PIECE), _MOST_PIECES)
            begin = _emit_balanced_piece_begin(c, piece, pieces)
            end = _emit_balanced_piece_begin(c, c.binary("add", piece, 1), pieces)
            tables = (("ptr", c.load_pointer("@work", 1)), ("ptr", c.load_pointer("@work", 2)))
            c.call_address(c.load_pointer("@work", 0), "void", *tables, ("i64", begin), ("i64", end))
            _atomic_add(c, "done", 1)
    c.emit_return()
    return c


def _emit_balanced_piece_begin(c: IRFunction, piece: str, pieces: str) -> str:
    """Emit the begin of a piece. Pieces differ by one iteration at most.

    It is q * p + min(p, r), as the product of extent and piece may not fit a word.
    """
    extent = c.load_word("@work", 3)
    whole, rest = c.binary("udiv", extent, pieces), c.binary("urem", extent, pieces)
    return c.binary("add", c.binary("mul", whole, piece), _minimum(c, piece, rest))


def _define_worker_thread(machine: str) -> IRFunction:
    """Define the body of a thread of the pool, whose number is its argument."""
    c = IRFunction("worker", "ptr", ("ptr", "number"), internal=True)
    me, looks = c.emit("ptrtoint ptr %number to i64"), c.declare_local("i64", 0)
    with c.endless_loop():
        c.call("pieces", "void", ("i64", me))
        c.store("i64", 0, looks)
        with c.endless_loop() as next_:
            with c.if_true(c.call("there_is", "i1", ("i64", me), ("i64", _atomic_load(c, "job")))):
                c.jump_unless_terminated(next_)
            n = c.load("i64", looks)
            with c.if_true(c.compare("sgt", n, _LOOKS)):
                c.call("pthread_mutex_lock", "i32", ("ptr", "@mutex"))
                _atomic_add(c, "sleeping", 1)
                with c.endless_loop() as woken:
                    with c.if_true(c.call("there_is", "i1", ("i64", me), ("i64", _atomic_load(c, "job")))):
                        c.jump_unless_terminated(woken)
                    c.call("pthread_cond_wait", "i32", ("ptr", "@wake"), ("ptr", "@mutex"))
                _atomic_add(c, "sleeping", -1)
                c.call("pthread_mutex_unlock", "i32", ("ptr", "@mutex"))
                c.jump_unless_terminated(next_)
            _emit_spin_pause(c, machine)
            c.store("i64", c.binary("add", n, 1), looks)
    c.emit_return("null")
    return c


def _define_start_thread_with_signals_blocked() -> IRFunction:
    """Define the start of thread number `n` + 1, with all signals blocked; it returns whether that succeeded."""
    c = IRFunction("start", "i1", ("i64", "n"), internal=True)
    attributes, thread, all_, before = (c.alloca_words(words) for words in (16, 1, 32, 32))
    c.call("sigfillset", "i32", ("ptr", all_))
    c.call("pthread_sigmask", "i32", ("i32", str(_SIG_SETMASK)), ("ptr", all_), ("ptr", before))
    c.call("pthread_attr_init", "i32", ("ptr", attributes))
    c.call("pthread_attr_setstacksize", "i32", ("ptr", attributes), ("i64", str(_STACK_BYTES)))
    c.call("pthread_attr_setdetachstate", "i32", ("ptr", attributes), ("i32", str(_DETACHED)))
    number = c.emit(f"inttoptr i64 {c.binary('add', '%n', 1)} to ptr")
    failed = c.call("pthread_create", "i32", ("ptr", thread), ("ptr", attributes), ("ptr", "@worker"), ("ptr", number))
    c.call("pthread_attr_destroy", "i32", ("ptr", attributes))
    c.call("pthread_sigmask", "i32", ("i32", str(_SIG_SETMASK)), ("ptr", before), ("ptr", "null"))
    c.emit_return(c.compare("eq", failed, 0, "i32"))
    return c


def _define_reset_after_fork() -> IRFunction:
    """Define `uops_forked`."""
    c = IRFunction(FORKED, "void")
    for name in ("job", "done", "sleeping", "taken"):
        _atomic_store(c, name, "0")
    c.store("i64", 0, "@workers")
    c.call("pthread_mutex_init", "i32", ("ptr", "@mutex"), ("ptr", "null"))
    c.call("pthread_cond_init", "i32", ("ptr", "@wake"), ("ptr", "null"))
    c.emit_return()
    return c
