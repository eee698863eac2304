"""The entry from Python into programs: one native function for all of them, driven by a table of words per program.

`uops_call(self, args, count)` is a builtin of CPython (METH_FASTCALL). `self` is a tuple of the table (a bytes object), the
fallback, and whatever must live as long. It takes exactly what the table describes: arrays of NumPy's own type with equal dtype,
shape, C order and alignment, bools of bytes 0 and 1, and ints within their bounds. It makes the arrays of the results, runs the
kernels, and returns the results. It passes anything else to the fallback, which has the same contract in Python, and converts or
raises. `uops_execute(table, bases, variables)` runs the kernels alone; the fallback calls it.

It relies on these fields of objects beyond CPython's stable interface: the type of an object, and the fields of an array that
NumPy 1 and 2 lay out alike (data, dimensions, descr, flags). `TableHeader` and the entries below it describe the table; lengths
are in words.
"""

from __future__ import annotations

from enum import IntEnum, auto

from uops.backends.native_entry.ir import IRFunction, render_module
from uops.backends.native_entry.pool import PARALLEL, define_pool_functions_and_globals


class _WordLayout(IntEnum):
    """Positions of words, from 0 on."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[int]) -> int:
        return count


class TableHeader(_WordLayout):
    """The beginning of a table. `*_AT` is the word at which an array of entries begins."""

    FALLBACK = auto()
    ARGUMENTS = auto()
    ARGUMENTS_AT = auto()
    BASES = auto()  # memories of the program, each with an address during a run
    BASES_AT = auto()  # the addresses of those with the same address in every run
    TEMPORARIES = auto()
    TEMPORARIES_AT = auto()
    BLOCK = auto()  # bytes of all temporaries
    OUTPUTS = auto()
    OUTPUTS_AT = auto()
    LAUNCHES = auto()
    LAUNCHES_AT = auto()
    VARIABLES = auto()
    WIDEST = auto()  # greatest number of arguments of a kernel
    SINGLE = auto()  # the result is an array, not a tuple
    LONG = auto()  # long enough to release the interpreter's lock
    THREADS = auto()  # threads that may run a kernel, this one included
    NEW_ARRAY = auto()  # PyArray_NewFromDescr
    SET_BASE = auto()  # PyArray_SetBaseObject
    ARRAY_TYPE = auto()
    SIZE = auto()


class ArgumentEntry(_WordLayout):
    """An argument: an array for a base (REQUIRED or OPTIONAL; None stands for the address in BASES_AT), or an int for a
    VARIABLE."""

    KIND = auto()
    TO = auto()  # the base or the variable
    DTYPE = auto()
    DIMENSIONS = auto()
    DIMENSIONS_AT = auto()
    BOOLS = auto()  # bytes that must be 0 or 1
    LOW = auto()
    HIGH = auto()
    SIZE = auto()


class TemporaryEntry(_WordLayout):
    """Memory of one run, at an offset in the block."""

    BASE = auto()
    OFFSET = auto()
    SIZE = auto()


class OutputEntry(_WordLayout):
    """An array that the run makes. FROM is the base whose contents it starts with; its own if it starts as anything."""

    BASE = auto()
    DTYPE = auto()
    DIMENSIONS = auto()
    DIMENSIONS_AT = auto()
    BYTES = auto()
    FROM = auto()
    SIZE = auto()


class LaunchEntry(_WordLayout):
    """A call of a kernel.

    Each of its arguments is the base and the offset of a buffer, or -1 - v and 0 for variable v. EXTENT is the trip count of the
    loop that threads may share, 0 for none. CHUNKS is the number of pieces of it that are worth a thread.
    """

    KERNEL = auto()
    ARGUMENTS = auto()
    ARGUMENTS_AT = auto()
    EXTENT = auto()
    CHUNKS = auto()
    SIZE = auto()


REQUIRED, OPTIONAL, VARIABLE = range(3)

# Offsets in bytes of the fields of CPython's and NumPy's objects.
_TYPE = 8
_DATA, _DIMENSIONS_OF, _SHAPE, _DTYPE, _FLAGS = 16, 24, 32, 56, 64
_WANTED_FLAGS = 0x101  # C_CONTIGUOUS, ALIGNED
_OUTPUT_FLAGS = 0x501  # and WRITEABLE
_NEITHER = ~0x0101010101010101  # bits that no bool byte has

#: Least size of an array in a block of this module, in bytes: cache-line aligned, and reused without page faults.
OWN_BLOCK = 1 << 14
#: Greatest size of all temporaries on the stack, in bytes.
STACK = 1 << 12
#: Limits of the blocks kept for reuse: their number, and their bytes in all.
KEPT_BLOCKS = 32
KEPT_BYTES = 256 << 20

CALL, EXECUTE = "uops_call", "uops_execute"

#: Symbols that the module may refer to: CPython's interface, and memory and threads of the C library.
SYMBOLS = frozenset(
    {"PyBytes_AsString", "PyTuple_GetItem", "PyTuple_New", "PyTuple_SetItem", "PyLong_AsLongLong", "PyErr_Occurred", "PyErr_Clear"}
    | {"PyObject_Vectorcall", "Py_IncRef", "Py_DecRef", "PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_NoMemory"}
    | {"PyCapsule_New", "PyCapsule_GetPointer", "PyCapsule_GetContext", "PyCapsule_SetContext", "PyLong_Type", "_Py_NoneStruct"}
    | {"aligned_alloc", "free", "memcpy", "sched_yield", "pthread_create", "pthread_sigmask", "sigfillset"}
    | {f"pthread_{name}" for name in ("mutex_init", "mutex_lock", "mutex_unlock", "cond_init", "cond_wait", "cond_broadcast")}
    | {f"pthread_attr_{name}" for name in ("init", "setstacksize", "setdetachstate", "destroy")}
)


def render_entry_module(triple: str) -> str:
    """Return the text of the module for a machine's triple."""
    functions = [
        _define_python_call(),
        _define_check_of_one_argument(),
        _define_all_bytes_bool_check(),
        _define_allocation_and_copy_of_all_outputs(),
        _define_run_all_launches(),
        _define_kernel_launch(),
        _define_allocation_from_kept_blocks(),
        _define_release_into_bounded_kept_blocks(),
        _define_destructor_of_array_block_capsule(),
    ]
    variables = [
        f"@blocks = internal global [{2 * KEPT_BLOCKS} x i64] zeroinitializer, align 8",  # (bytes, address), 0 bytes: none
        "@kept = internal global [2 x i64] zeroinitializer, align 8",  # bytes in all, the next to go
        "@PyLong_Type = external global i8",
        "@_Py_NoneStruct = external global i8",
    ]
    more, globals_ = define_pool_functions_and_globals(triple)
    return render_module([*functions, *more], [*variables, *globals_])


def _define_python_call() -> IRFunction:
    """Define `uops_call`."""
    c = IRFunction(CALL, "ptr", ("ptr", "self"), ("ptr", "args"), ("i64", "count"))
    w = c.call("PyBytes_AsString", "ptr", ("ptr", c.call("PyTuple_GetItem", "ptr", ("ptr", "%self"), ("i64", "0"))))
    n = c.load_word(w, TableHeader.ARGUMENTS)
    c.branch_unless(c.compare("eq", "%count", n), "%general")
    bases = c.alloca_words(c.load_word(w, TableHeader.BASES))
    variables = c.alloca_words(c.load_word(w, TableHeader.VARIABLES))
    _copy_words(c, bases, _entries_address(c, w, TableHeader.BASES_AT), c.load_word(w, TableHeader.BASES))
    arguments = _entries_address(c, w, TableHeader.ARGUMENTS_AT)
    with c.counted_loop(n) as k:
        entry = c.word_address(arguments, c.binary("mul", k, ArgumentEntry.SIZE))
        argument = c.load_pointer("%args", k)
        accepted = c.call("checked", "i1", ("ptr", w), ("ptr", entry), ("ptr", argument), ("ptr", bases), ("ptr", variables))
        c.branch_unless(accepted, "%general")
    arrays = c.alloca_words(c.load_word(w, TableHeader.OUTPUTS))
    c.branch_unless(c.call("made", "i1", ("ptr", w), ("ptr", bases), ("ptr", arrays)), "%failed")
    _emit_run_with_temporaries(c, w, bases, variables)
    _emit_return_of_results(c, w, arrays)
    c.fall_into_block("%general")
    fallback = c.load_pointer(w, TableHeader.FALLBACK)
    result = c.call("PyObject_Vectorcall", "ptr", ("ptr", fallback), ("ptr", "%args"), ("i64", "%count"), ("ptr", "null"))
    c.emit_return(result)
    c.start_block("%failed")
    c.emit_return("null")
    return c


def _entries_address(c: IRFunction, table: str, at: TableHeader) -> str:
    """Emit the address of an array of entries."""
    return c.word_address(table, c.load_word(table, at))


def _copy_words(c: IRFunction, to: str, source: str, words: str) -> None:
    with c.counted_loop(words) as k:
        c.store("i64", c.load_word(source, k), c.word_address(to, k))


def _emit_run_with_temporaries(c: IRFunction, table: str, bases: str, variables: str) -> None:
    """Allocate memory for the temporaries, run the kernels, and free it."""
    size = c.load_word(table, TableHeader.BLOCK)
    small = c.compare("sle", size, STACK)
    block = c.declare_local("ptr", c.alloca_words(c.binary("sdiv", c.select(small, "i64", size, 0), 8)))
    with c.if_true(c.emit(f"xor i1 {small}, true")):
        new_block = c.call("take", "ptr", ("i64", size))
        c.store("ptr", new_block, block)
        c.branch_unless(c.compare("ne", new_block, "null", "ptr"), "%exhausted")
    start = c.load("ptr", block)
    entries = _entries_address(c, table, TableHeader.TEMPORARIES_AT)
    with c.counted_loop(c.load_word(table, TableHeader.TEMPORARIES)) as k:
        entry = c.word_address(entries, c.binary("mul", k, TemporaryEntry.SIZE))
        c.store(
            "ptr",
            c.byte_address(start, c.load_word(entry, TemporaryEntry.OFFSET)),
            c.word_address(bases, c.load_word(entry, TemporaryEntry.BASE)),
        )
    long = c.compare("ne", c.load_word(table, TableHeader.LONG), 0)
    state = c.declare_local("ptr", "null")
    with c.if_true(long):
        c.store("ptr", c.call("PyEval_SaveThread", "ptr"), state)
    c.call(EXECUTE, "void", ("ptr", table), ("ptr", bases), ("ptr", variables))
    with c.if_true(long):
        c.call("PyEval_RestoreThread", "void", ("ptr", c.load("ptr", state)))
    with c.if_true(c.emit(f"xor i1 {small}, true")):
        c.call("give", "void", ("ptr", start), ("i64", size))


def _emit_return_of_results(c: IRFunction, table: str, arrays: str) -> None:
    """Return the one array or a tuple of all; on failure, release them."""
    single, n = c.compare("ne", c.load_word(table, TableHeader.SINGLE), 0), c.load_word(table, TableHeader.OUTPUTS)
    with c.if_true(single):
        c.emit_return(c.load_pointer(arrays, 0))
    results = c.call("PyTuple_New", "ptr", ("i64", n))
    c.branch_unless(c.compare("ne", results, "null", "ptr"), "%dropped")
    with c.counted_loop(n) as k:
        c.call("PyTuple_SetItem", "i32", ("ptr", results), ("i64", k), ("ptr", c.load_pointer(arrays, k)))
    c.emit_return(results)
    c.start_block("%exhausted")
    c.call("PyErr_NoMemory", "ptr")
    c.fall_into_block("%dropped")
    _release_objects(c, arrays, c.load_word(table, TableHeader.OUTPUTS))
    c.emit_return("null")


def _release_objects(c: IRFunction, objects: str, count: str) -> None:
    with c.counted_loop(count) as k:
        c.call("Py_DecRef", "void", ("ptr", c.load_pointer(objects, k)))


def _define_check_of_one_argument() -> IRFunction:
    """Define the check of one argument against its entry; it stores the argument's address or value."""
    names = ("table", "entry", "argument", "bases", "variables")
    c = IRFunction("checked", "i1", *(("ptr", n) for n in names), internal=True)
    kind = c.load("ptr", "%argument", _TYPE)
    to = c.load_word("%entry", ArgumentEntry.TO)
    with c.if_true(c.compare("eq", c.load_word("%entry", ArgumentEntry.KIND), VARIABLE)):
        c.branch_unless(c.compare("eq", kind, "@PyLong_Type", "ptr"), "%no")
        x = c.call("PyLong_AsLongLong", "i64", ("ptr", "%argument"))
        with c.if_true(c.compare("eq", x, -1)), c.if_true(c.compare("ne", c.call("PyErr_Occurred", "ptr"), "null", "ptr")):
            c.call("PyErr_Clear", "void")
            c.jump_unless_terminated("%no")
        c.branch_unless(c.compare("sge", x, c.load_word("%entry", ArgumentEntry.LOW)), "%no")
        c.branch_unless(c.compare("sle", x, c.load_word("%entry", ArgumentEntry.HIGH)), "%no")
        c.store("i64", x, c.word_address("%variables", to))
        c.emit_return("true")
    with c.if_true(c.compare("eq", "%argument", "@_Py_NoneStruct", "ptr")):
        c.emit_return(c.compare("eq", c.load_word("%entry", ArgumentEntry.KIND), OPTIONAL))
    c.branch_unless(c.compare("eq", kind, c.load_pointer("%table", TableHeader.ARRAY_TYPE), "ptr"), "%no")
    c.branch_unless(
        c.compare("eq", c.load("ptr", "%argument", _DTYPE), c.load_pointer("%entry", ArgumentEntry.DTYPE), "ptr"), "%no"
    )
    flags = c.binary("and", c.load("i32", "%argument", _FLAGS), _WANTED_FLAGS, "i32")
    c.branch_unless(c.compare("eq", flags, _WANTED_FLAGS, "i32"), "%no")
    n = c.load_word("%entry", ArgumentEntry.DIMENSIONS)
    c.branch_unless(c.compare("eq", c.emit(f"sext i32 {c.load('i32', '%argument', _DIMENSIONS_OF)} to i64"), n), "%no")
    shape, expected = (
        c.load("ptr", "%argument", _SHAPE),
        c.word_address("%table", c.load_word("%entry", ArgumentEntry.DIMENSIONS_AT)),
    )
    with c.counted_loop(n) as k:
        c.branch_unless(c.compare("eq", c.load_word(shape, k), c.load_word(expected, k)), "%no")
    data, bools = c.load("ptr", "%argument", _DATA), c.load_word("%entry", ArgumentEntry.BOOLS)
    with c.if_true(c.compare("ne", bools, 0)):
        c.branch_unless(c.call("truths", "i1", ("ptr", data), ("i64", bools)), "%no")
    c.store("ptr", data, c.word_address("%bases", to))
    c.emit_return("true")
    c.start_block("%no")
    c.emit_return("false")
    return c


def _define_all_bytes_bool_check() -> IRFunction:
    """Define the check that all bytes are 0 or 1 (R24: a bool is a byte of 0 or 1)."""
    c = IRFunction("truths", "i1", ("ptr", "data"), ("i64", "count"), internal=True)
    seen, words = c.declare_local("i64", 0), c.binary("lshr", "%count", 3)
    with c.counted_loop(words) as k:
        c.store("i64", c.binary("or", c.load("i64", seen), c.load("i64", c.word_address("%data", k), align=1)), seen)
    with c.counted_loop("%count", c.binary("shl", words, 3)) as k:
        c.store("i64", c.binary("or", c.load("i64", seen), c.emit(f"zext i8 {c.load('i8', '%data', k)} to i64")), seen)
    c.emit_return(c.compare("eq", c.binary("and", c.load("i64", seen), _NEITHER), 0))
    return c


def _define_allocation_and_copy_of_all_outputs() -> IRFunction:
    """Define the allocation of all results. On failure it returns false with an exception set, and has released them."""
    c = IRFunction("made", "i1", ("ptr", "table"), ("ptr", "bases"), ("ptr", "made"), internal=True)
    entries, done = _entries_address(c, "%table", TableHeader.OUTPUTS_AT), c.declare_local("i64", 0)
    with c.counted_loop(c.load_word("%table", TableHeader.OUTPUTS)) as k:
        entry = c.word_address(entries, c.binary("mul", k, OutputEntry.SIZE))
        array = _emit_new_numpy_array(c, entry)
        c.store("ptr", array, c.word_address("%made", k))
        c.store("i64", c.binary("add", k, 1), done)
        data, base, source = c.load("ptr", array, _DATA), c.load_word(entry, OutputEntry.BASE), c.load_word(entry, OutputEntry.FROM)
        with c.if_true(c.compare("ne", base, source)):
            size = c.load_word(entry, OutputEntry.BYTES)
            c.call("memcpy", "ptr", ("ptr", data), ("ptr", c.load_pointer("%bases", source)), ("i64", size))
        c.store("ptr", data, c.word_address("%bases", base))
    c.emit_return("true")
    c.start_block("%none")
    _release_objects(c, "%made", c.load("i64", done))
    c.emit_return("false")
    return c


def _emit_new_numpy_array(c: IRFunction, output_entry_address: str) -> str:
    """Create an array in memory of NumPy's, or in a block of this module if it is large."""
    size, owner = c.load_word(output_entry_address, OutputEntry.BYTES), c.declare_local("ptr", "null")
    data = c.declare_local("ptr", "null")
    with c.if_true(c.compare("sge", size, OWN_BLOCK)):
        block = c.call("take", "ptr", ("i64", size))
        with c.if_true(c.compare("eq", block, "null", "ptr")):
            c.call("PyErr_NoMemory", "ptr")
            c.jump_unless_terminated("%none")
        capsule = c.call("PyCapsule_New", "ptr", ("ptr", block), ("ptr", "null"), ("ptr", "@released"))
        with c.if_true(c.compare("eq", capsule, "null", "ptr")):
            c.call("give", "void", ("ptr", block), ("i64", size))
            c.jump_unless_terminated("%none")
        c.call("PyCapsule_SetContext", "i32", ("ptr", capsule), ("ptr", c.emit(f"inttoptr i64 {size} to ptr")))
        c.store("ptr", block, data)
        c.store("ptr", capsule, owner)
    dtype = c.load_pointer(output_entry_address, OutputEntry.DTYPE)
    c.call("Py_IncRef", "void", ("ptr", dtype))  # a reference for the new array
    n = c.emit(f"trunc i64 {c.load_word(output_entry_address, OutputEntry.DIMENSIONS)} to i32")
    shape, given = c.word_address("%table", c.load_word(output_entry_address, OutputEntry.DIMENSIONS_AT)), c.load("ptr", data)
    operands = (
        ("ptr", c.load_pointer("%table", TableHeader.ARRAY_TYPE)), ("ptr", dtype), ("i32", n), ("ptr", shape), ("ptr", "null"),
        ("ptr", given), ("i32", c.select(c.compare("eq", given, "null", "ptr"), "i32", 0, _OUTPUT_FLAGS)), ("ptr", "null"),
    )  # fmt: skip
    array = c.call_address(c.load_pointer("%table", TableHeader.NEW_ARRAY), "ptr", *operands)
    capsule = c.load("ptr", owner)
    with c.if_true(c.compare("eq", array, "null", "ptr")):
        with c.if_true(c.compare("ne", capsule, "null", "ptr")):
            c.call("Py_DecRef", "void", ("ptr", capsule))
        c.jump_unless_terminated("%none")
    with c.if_true(c.compare("ne", capsule, "null", "ptr")):
        c.call_address(c.load_pointer("%table", TableHeader.SET_BASE), "i32", ("ptr", array), ("ptr", capsule))
    return array


def _define_run_all_launches() -> IRFunction:
    """Define `uops_execute`."""
    c = IRFunction(EXECUTE, "void", ("ptr", "table"), ("ptr", "bases"), ("ptr", "variables"))
    widest, launches = c.load_word("%table", TableHeader.WIDEST), _entries_address(c, "%table", TableHeader.LAUNCHES_AT)
    buffers, scalars = c.alloca_words(widest), c.alloca_words(widest)
    with c.counted_loop(c.load_word("%table", TableHeader.LAUNCHES)) as k:
        entry = c.word_address(launches, c.binary("mul", k, LaunchEntry.SIZE))
        operands = [("%table", entry), ("%bases", "%variables"), (buffers, scalars)]
        c.call("launch", "void", *(("ptr", x) for pair in operands for x in pair))
    c.emit_return()
    return c


def _define_kernel_launch() -> IRFunction:
    """Define the call of one kernel, after filling its tables of arguments."""
    names = ("table", "entry", "bases", "variables", "buffers", "scalars")
    c = IRFunction("launch", "void", *(("ptr", n) for n in names), internal=True)
    arguments = c.word_address("%table", c.load_word("%entry", LaunchEntry.ARGUMENTS_AT))
    with c.counted_loop(c.load_word("%entry", LaunchEntry.ARGUMENTS)) as k:
        pair = c.word_address(arguments, c.binary("mul", k, 2))
        base = c.load_word(pair, 0)
        is_buffer = c.compare("sge", base, 0)
        number = c.select(is_buffer, "i64", base, c.binary("sub", -1, base))
        value = c.load_word(c.select(is_buffer, "ptr", "%bases", "%variables"), number)
        target = c.select(is_buffer, "ptr", "%buffers", "%scalars")
        c.store("i64", c.binary("add", value, c.load_word(pair, 1)), c.word_address(target, k))
    kernel, extent = c.load_pointer("%entry", LaunchEntry.KERNEL), c.load_word("%entry", LaunchEntry.EXTENT)
    tables = (("ptr", "%buffers"), ("ptr", "%scalars"))
    with c.if_true(c.compare("eq", extent, 0)):
        c.call_address(kernel, "void", *tables)
        c.emit_return()
    chunks, threads = c.load_word("%entry", LaunchEntry.CHUNKS), c.load_word("%table", TableHeader.THREADS)
    c.call(PARALLEL, "void", ("ptr", kernel), *tables, ("i64", extent), ("i64", chunks), ("i64", threads))
    c.emit_return()
    return c


# Blocks of memory. A caller of take and give must hold the interpreter's lock.


def _define_allocation_from_kept_blocks() -> IRFunction:
    """Define the allocation of a block: one that was given back before, or a new one; null if there is none."""
    c = IRFunction("take", "ptr", ("i64", "size"), internal=True)
    with c.counted_loop(KEPT_BLOCKS) as k:
        entry = c.word_address("@blocks", c.binary("mul", k, 2))
        with c.if_true(c.compare("eq", c.load_word(entry, 0), "%size")):
            c.store("i64", 0, entry)
            c.store("i64", c.binary("sub", c.load_word("@kept", 0), "%size"), "@kept")
            c.emit_return(c.load_pointer(entry, 1))
    rounded = c.binary("and", c.binary("add", "%size", 63), -64)
    c.emit_return(c.call("aligned_alloc", "ptr", ("i64", "64"), ("i64", rounded)))
    return c


def _define_release_into_bounded_kept_blocks() -> IRFunction:
    """Define the release of a block: keep it in place of the oldest kept one, or free it if it is very large."""
    c = IRFunction("give", "void", ("ptr", "block"), ("i64", "size"), internal=True)
    with c.if_true(c.compare("sgt", "%size", KEPT_BYTES // 2)):
        c.call("free", "void", ("ptr", "%block"))
        c.emit_return()
    with c.endless_loop() as done:
        k = c.load_word("@kept", 1)
        c.store("i64", c.binary("urem", c.binary("add", k, 1), KEPT_BLOCKS), "@kept", 8)
        entry = c.word_address("@blocks", c.binary("mul", k, 2))
        size = c.load_word(entry, 0)
        held = c.binary("sub", c.load_word("@kept", 0), size)
        with c.if_true(c.compare("ne", size, 0)):
            c.call("free", "void", ("ptr", c.load_pointer(entry, 1)))
            c.store("i64", 0, entry)
            c.store("i64", held, "@kept")
        more = c.binary("add", held, "%size")
        with c.if_true(c.compare("sle", more, KEPT_BYTES)):
            c.store("i64", "%size", entry)
            c.store("ptr", "%block", c.word_address(entry, 1))
            c.store("i64", more, "@kept")
            c.jump_unless_terminated(done)
    c.emit_return()
    return c


def _define_destructor_of_array_block_capsule() -> IRFunction:
    """Define the destructor of the capsule that owns an array's memory."""
    c = IRFunction("released", "void", ("ptr", "capsule"), internal=True)
    block = c.call("PyCapsule_GetPointer", "ptr", ("ptr", "%capsule"), ("ptr", "null"))
    size = c.emit(f"ptrtoint ptr {c.call('PyCapsule_GetContext', 'ptr', ('ptr', '%capsule'))} to i64")
    c.call("give", "void", ("ptr", block), ("i64", size))
    c.emit_return()
    return c
