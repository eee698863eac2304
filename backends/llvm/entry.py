"""How Python calls a program: one native function for all of them, driven by a table of words per program.

`uops_call(self, args, count)` is a builtin of CPython (METH_FASTCALL). `self` is a tuple of a bytes object, which is the table, the
fallback, and whatever else must live as long. It takes exactly what the table says - arrays of NumPy's own type with the very
dtype, shape, C order and alignment, bools of bytes 0 and 1, ints within their bounds - makes the arrays of the results, runs the
kernels, and gives the results. Anything else it hands to the fallback, which is the same contract in Python: it converts, or
raises.
`uops_execute(table, bases, variables)` runs the kernels alone; the fallback calls it.

What is read of objects beside CPython's stable interface: the type of an object, and of a NumPy array the fields that NumPy 1 and 2
lay out alike (data, dimensions, descr, flags). A table's arrays: see `Head` and the entries below it; lengths are in words.
"""

from __future__ import annotations

from enum import IntEnum, auto

from uops.backends.llvm.native import Code, module
from uops.backends.llvm.pool import PARALLEL, pool


class _Words(IntEnum):
    """Numbers of words from 0 on."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[int]) -> int:
        return count


class Head(_Words):
    """The beginning of a table. `*_AT`: the word where an array of entries starts."""

    FALLBACK = auto()
    ARGUMENTS = auto()
    ARGUMENTS_AT = auto()
    BASES = auto()  # memory of the program: one address each during a run
    BASES_AT = auto()  # the addresses of those that are the same in every run
    TEMPORARIES = auto()
    TEMPORARIES_AT = auto()
    BLOCK = auto()  # bytes of all temporaries
    OUTPUTS = auto()
    OUTPUTS_AT = auto()
    LAUNCHES = auto()
    LAUNCHES_AT = auto()
    VARIABLES = auto()
    WIDEST = auto()  # the most arguments of a kernel
    SINGLE = auto()  # the result is the one array, not a tuple
    LONG = auto()  # long enough to let other Python threads run
    THREADS = auto()  # that may run a kernel, this one included
    NEW_ARRAY = auto()  # PyArray_NewFromDescr
    SET_BASE = auto()  # PyArray_SetBaseObject
    ARRAY_TYPE = auto()
    SIZE = auto()


class Argument(_Words):
    """An array for a base (REQUIRED or OPTIONAL, where None stands for what BASES_AT has), or an int for a VARIABLE."""

    KIND = auto()
    TO = auto()  # the base or the variable
    DTYPE = auto()
    DIMENSIONS = auto()
    DIMENSIONS_AT = auto()
    BOOLS = auto()  # bytes that have to be 0 or 1
    LOW = auto()
    HIGH = auto()
    SIZE = auto()


class Temporary(_Words):
    """Memory of one run, a place in the block."""

    BASE = auto()
    OFFSET = auto()
    SIZE = auto()


class Output(_Words):
    """An array that the run makes. FROM: the base that it starts as a copy of, its own where it need not start as anything."""

    BASE = auto()
    DTYPE = auto()
    DIMENSIONS = auto()
    DIMENSIONS_AT = auto()
    BYTES = auto()
    FROM = auto()
    SIZE = auto()


class Launch(_Words):
    """One call of a kernel. Its arguments: the base and the offset of a buffer; -1 - v and 0 for variable v. EXTENT: iterations of
    the loop that threads may share, 0 for none; CHUNKS: pieces of it that are worth handing out."""

    KERNEL = auto()
    ARGUMENTS = auto()
    ARGUMENTS_AT = auto()
    EXTENT = auto()
    CHUNKS = auto()
    SIZE = auto()


REQUIRED, OPTIONAL, VARIABLE = range(3)

# Bytes of CPython's and NumPy's objects.
_TYPE = 8
_DATA, _DIMENSIONS_OF, _SHAPE, _DTYPE, _FLAGS = 16, 24, 32, 56, 64
_WANTED_FLAGS = 0x101  # C_CONTIGUOUS, ALIGNED
_OUTPUT_FLAGS = 0x501  # and WRITEABLE
_NEITHER = ~0x0101010101010101  # bits that no bool byte has

#: Arrays of at least this many bytes lie in blocks of ours: aligned to a cache line, and used again without page faults.
OWN_BLOCK = 1 << 14
#: Temporaries up to this many bytes lie on the stack.
STACK = 1 << 12
#: Blocks that are kept for use again, and their bytes in all.
KEPT_BLOCKS = 32
KEPT_BYTES = 256 << 20

CALL, EXECUTE = "uops_call", "uops_execute"

#: What the module may refer to: CPython's interface, the C library's memory and threads.
SYMBOLS = frozenset(
    {"PyBytes_AsString", "PyTuple_GetItem", "PyTuple_New", "PyTuple_SetItem", "PyLong_AsLongLong", "PyErr_Occurred", "PyErr_Clear"}
    | {"PyObject_Vectorcall", "Py_IncRef", "Py_DecRef", "PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_NoMemory"}
    | {"PyCapsule_New", "PyCapsule_GetPointer", "PyCapsule_GetContext", "PyCapsule_SetContext", "PyLong_Type", "_Py_NoneStruct"}
    | {"aligned_alloc", "free", "memcpy", "sched_yield", "pthread_create", "pthread_sigmask", "sigfillset"}
    | {f"pthread_{what}" for what in ("mutex_init", "mutex_lock", "mutex_unlock", "cond_init", "cond_wait", "cond_broadcast")}
    | {f"pthread_attr_{what}" for what in ("init", "setstacksize", "setdetachstate", "destroy")}
)


def text(triple: str) -> str:
    """The module, for a kind of machine."""
    functions = [_call(), _checked(), _truths(), _made(), _execute(), _launch(), _take(), _give(), _released()]
    variables = [
        f"@blocks = internal global [{2 * KEPT_BLOCKS} x i64] zeroinitializer, align 8",  # (bytes, address), 0 bytes: none
        "@kept = internal global [2 x i64] zeroinitializer, align 8",  # bytes in all, the next to go
        "@PyLong_Type = external global i8",
        "@_Py_NoneStruct = external global i8",
    ]
    more, globals_ = pool(triple)
    return module([*functions, *more], [*variables, *globals_])


def _call() -> Code:
    c = Code(CALL, "ptr", ("ptr", "self"), ("ptr", "args"), ("i64", "count"))
    w = c.call("PyBytes_AsString", "ptr", ("ptr", c.call("PyTuple_GetItem", "ptr", ("ptr", "%self"), ("i64", "0"))))
    n = c.word(w, Head.ARGUMENTS)
    c.unless(c.test("eq", "%count", n), "%general")
    bases = c.table(c.word(w, Head.BASES))
    variables = c.table(c.word(w, Head.VARIABLES))
    _copy(c, bases, _array(c, w, Head.BASES_AT), c.word(w, Head.BASES))
    arguments = _array(c, w, Head.ARGUMENTS_AT)
    with c.each(n) as k:
        entry = c.slot(arguments, c.op("mul", k, Argument.SIZE))
        argument = c.pointer("%args", k)
        taken = c.call("checked", "i1", ("ptr", w), ("ptr", entry), ("ptr", argument), ("ptr", bases), ("ptr", variables))
        c.unless(taken, "%general")
    made = c.table(c.word(w, Head.OUTPUTS))
    c.unless(c.call("made", "i1", ("ptr", w), ("ptr", bases), ("ptr", made)), "%failed")
    _with_block(c, w, bases, variables)
    _results(c, w, made)
    c.label("%general")
    fallback = c.pointer(w, Head.FALLBACK)
    found = c.call("PyObject_Vectorcall", "ptr", ("ptr", fallback), ("ptr", "%args"), ("i64", "%count"), ("ptr", "null"))
    c.leave(found)
    c.block("%failed")
    c.leave("null")
    return c


def _array(c: Code, w: str, at: Head) -> str:
    return c.slot(w, c.word(w, at))


def _copy(c: Code, to: str, source: str, words: str) -> None:
    with c.each(words) as k:
        c.store("i64", c.word(source, k), c.slot(to, k))


def _with_block(c: Code, w: str, bases: str, variables: str) -> None:
    """Find memory for the temporaries, run, and give it back."""
    size = c.word(w, Head.BLOCK)
    small = c.test("sle", size, STACK)
    block = c.local("ptr", c.table(c.op("sdiv", c.choose(small, "i64", size, 0), 8)))
    with c.when(c.emit(f"xor i1 {small}, true")):
        found = c.call("take", "ptr", ("i64", size))
        c.store("ptr", found, block)
        c.unless(c.test("ne", found, "null", "ptr"), "%exhausted")
    start = c.load("ptr", block)
    entries = _array(c, w, Head.TEMPORARIES_AT)
    with c.each(c.word(w, Head.TEMPORARIES)) as k:
        entry = c.slot(entries, c.op("mul", k, Temporary.SIZE))
        c.store("ptr", c.at(start, c.word(entry, Temporary.OFFSET)), c.slot(bases, c.word(entry, Temporary.BASE)))
    long = c.test("ne", c.word(w, Head.LONG), 0)
    state = c.local("ptr", "null")
    with c.when(long):
        c.store("ptr", c.call("PyEval_SaveThread", "ptr"), state)
    c.call(EXECUTE, "void", ("ptr", w), ("ptr", bases), ("ptr", variables))
    with c.when(long):
        c.call("PyEval_RestoreThread", "void", ("ptr", c.load("ptr", state)))
    with c.when(c.emit(f"xor i1 {small}, true")):
        c.call("give", "void", ("ptr", start), ("i64", size))


def _results(c: Code, w: str, made: str) -> None:
    single, n = c.test("ne", c.word(w, Head.SINGLE), 0), c.word(w, Head.OUTPUTS)
    with c.when(single):
        c.leave(c.pointer(made, 0))
    found = c.call("PyTuple_New", "ptr", ("i64", n))
    c.unless(c.test("ne", found, "null", "ptr"), "%dropped")
    with c.each(n) as k:
        c.call("PyTuple_SetItem", "i32", ("ptr", found), ("i64", k), ("ptr", c.pointer(made, k)))
    c.leave(found)
    c.block("%exhausted")
    c.call("PyErr_NoMemory", "ptr")
    c.label("%dropped")
    _drop(c, made, c.word(w, Head.OUTPUTS))
    c.leave("null")


def _drop(c: Code, objects: str, count: str) -> None:
    with c.each(count) as k:
        c.call("Py_DecRef", "void", ("ptr", c.pointer(objects, k)))


def _checked() -> Code:
    """Whether one argument is what its entry says; notes its address or its value."""
    names = ("table", "entry", "argument", "bases", "variables")
    c = Code("checked", "i1", *(("ptr", n) for n in names), internal=True)
    kind = c.load("ptr", "%argument", _TYPE)
    to = c.word("%entry", Argument.TO)
    with c.when(c.test("eq", c.word("%entry", Argument.KIND), VARIABLE)):
        c.unless(c.test("eq", kind, "@PyLong_Type", "ptr"), "%no")
        x = c.call("PyLong_AsLongLong", "i64", ("ptr", "%argument"))
        with c.when(c.test("eq", x, -1)), c.when(c.test("ne", c.call("PyErr_Occurred", "ptr"), "null", "ptr")):
            c.call("PyErr_Clear", "void")
            c.jump("%no")
        c.unless(c.test("sge", x, c.word("%entry", Argument.LOW)), "%no")
        c.unless(c.test("sle", x, c.word("%entry", Argument.HIGH)), "%no")
        c.store("i64", x, c.slot("%variables", to))
        c.leave("true")
    with c.when(c.test("eq", "%argument", "@_Py_NoneStruct", "ptr")):
        c.leave(c.test("eq", c.word("%entry", Argument.KIND), OPTIONAL))
    c.unless(c.test("eq", kind, c.pointer("%table", Head.ARRAY_TYPE), "ptr"), "%no")
    c.unless(c.test("eq", c.load("ptr", "%argument", _DTYPE), c.pointer("%entry", Argument.DTYPE), "ptr"), "%no")
    flags = c.op("and", c.load("i32", "%argument", _FLAGS), _WANTED_FLAGS, "i32")
    c.unless(c.test("eq", flags, _WANTED_FLAGS, "i32"), "%no")
    n = c.word("%entry", Argument.DIMENSIONS)
    c.unless(c.test("eq", c.emit(f"sext i32 {c.load('i32', '%argument', _DIMENSIONS_OF)} to i64"), n), "%no")
    shape, wanted = c.load("ptr", "%argument", _SHAPE), c.slot("%table", c.word("%entry", Argument.DIMENSIONS_AT))
    with c.each(n) as k:
        c.unless(c.test("eq", c.word(shape, k), c.word(wanted, k)), "%no")
    data, bools = c.load("ptr", "%argument", _DATA), c.word("%entry", Argument.BOOLS)
    with c.when(c.test("ne", bools, 0)):
        c.unless(c.call("truths", "i1", ("ptr", data), ("i64", bools)), "%no")
    c.store("ptr", data, c.slot("%bases", to))
    c.leave("true")
    c.block("%no")
    c.leave("false")
    return c


def _truths() -> Code:
    """Whether all bytes are 0 or 1 (R24)."""
    c = Code("truths", "i1", ("ptr", "data"), ("i64", "count"), internal=True)
    seen, words = c.local("i64", 0), c.op("lshr", "%count", 3)
    with c.each(words) as k:
        c.store("i64", c.op("or", c.load("i64", seen), c.load("i64", c.slot("%data", k), align=1)), seen)
    with c.each("%count", c.op("shl", words, 3)) as k:
        c.store("i64", c.op("or", c.load("i64", seen), c.emit(f"zext i8 {c.load('i8', '%data', k)} to i64")), seen)
    c.leave(c.test("eq", c.op("and", c.load("i64", seen), _NEITHER), 0))
    return c


def _made() -> Code:
    """Make the arrays of the results; false with an exception set where one cannot be made, and then there are none."""
    c = Code("made", "i1", ("ptr", "table"), ("ptr", "bases"), ("ptr", "made"), internal=True)
    entries, done = _array(c, "%table", Head.OUTPUTS_AT), c.local("i64", 0)
    with c.each(c.word("%table", Head.OUTPUTS)) as k:
        entry = c.slot(entries, c.op("mul", k, Output.SIZE))
        array = _output(c, entry)
        c.store("ptr", array, c.slot("%made", k))
        c.store("i64", c.op("add", k, 1), done)
        data, base, source = c.load("ptr", array, _DATA), c.word(entry, Output.BASE), c.word(entry, Output.FROM)
        with c.when(c.test("ne", base, source)):
            size = c.word(entry, Output.BYTES)
            c.call("memcpy", "ptr", ("ptr", data), ("ptr", c.pointer("%bases", source)), ("i64", size))
        c.store("ptr", data, c.slot("%bases", base))
    c.leave("true")
    c.block("%none")
    _drop(c, "%made", c.load("i64", done))
    c.leave("false")
    return c


def _output(c: Code, entry: str) -> str:
    """A new array in memory of NumPy's, or in a block of ours if it is large."""
    size, own = c.word(entry, Output.BYTES), c.local("ptr", "null")
    data = c.local("ptr", "null")
    with c.when(c.test("sge", size, OWN_BLOCK)):
        block = c.call("take", "ptr", ("i64", size))
        with c.when(c.test("eq", block, "null", "ptr")):
            c.call("PyErr_NoMemory", "ptr")
            c.jump("%none")
        capsule = c.call("PyCapsule_New", "ptr", ("ptr", block), ("ptr", "null"), ("ptr", "@released"))
        with c.when(c.test("eq", capsule, "null", "ptr")):
            c.call("give", "void", ("ptr", block), ("i64", size))
            c.jump("%none")
        c.call("PyCapsule_SetContext", "i32", ("ptr", capsule), ("ptr", c.emit(f"inttoptr i64 {size} to ptr")))
        c.store("ptr", block, data)
        c.store("ptr", capsule, own)
    dtype = c.pointer(entry, Output.DTYPE)
    c.call("Py_IncRef", "void", ("ptr", dtype))  # the new array takes it
    n = c.emit(f"trunc i64 {c.word(entry, Output.DIMENSIONS)} to i32")
    shape, given = c.slot("%table", c.word(entry, Output.DIMENSIONS_AT)), c.load("ptr", data)
    operands = (
        ("ptr", c.pointer("%table", Head.ARRAY_TYPE)), ("ptr", dtype), ("i32", n), ("ptr", shape), ("ptr", "null"),
        ("ptr", given), ("i32", c.choose(c.test("eq", given, "null", "ptr"), "i32", 0, _OUTPUT_FLAGS)), ("ptr", "null"),
    )  # fmt: skip
    array = c.through(c.pointer("%table", Head.NEW_ARRAY), "ptr", *operands)
    capsule = c.load("ptr", own)
    with c.when(c.test("eq", array, "null", "ptr")):
        with c.when(c.test("ne", capsule, "null", "ptr")):
            c.call("Py_DecRef", "void", ("ptr", capsule))
        c.jump("%none")
    with c.when(c.test("ne", capsule, "null", "ptr")):
        c.through(c.pointer("%table", Head.SET_BASE), "i32", ("ptr", array), ("ptr", capsule))
    return array


def _execute() -> Code:
    c = Code(EXECUTE, "void", ("ptr", "table"), ("ptr", "bases"), ("ptr", "variables"))
    widest, launches = c.word("%table", Head.WIDEST), _array(c, "%table", Head.LAUNCHES_AT)
    buffers, scalars = c.table(widest), c.table(widest)
    with c.each(c.word("%table", Head.LAUNCHES)) as k:
        entry = c.slot(launches, c.op("mul", k, Launch.SIZE))
        operands = [("%table", entry), ("%bases", "%variables"), (buffers, scalars)]
        c.call("launch", "void", *(("ptr", x) for pair in operands for x in pair))
    c.leave()
    return c


def _launch() -> Code:
    """Fill the tables of one kernel and call it."""
    names = ("table", "entry", "bases", "variables", "buffers", "scalars")
    c = Code("launch", "void", *(("ptr", n) for n in names), internal=True)
    arguments = c.slot("%table", c.word("%entry", Launch.ARGUMENTS_AT))
    with c.each(c.word("%entry", Launch.ARGUMENTS)) as k:
        pair = c.slot(arguments, c.op("mul", k, 2))
        base = c.word(pair, 0)
        is_buffer = c.test("sge", base, 0)
        number = c.choose(is_buffer, "i64", base, c.op("sub", -1, base))
        value = c.word(c.choose(is_buffer, "ptr", "%bases", "%variables"), number)
        target = c.choose(is_buffer, "ptr", "%buffers", "%scalars")
        c.store("i64", c.op("add", value, c.word(pair, 1)), c.slot(target, k))
    kernel, extent = c.pointer("%entry", Launch.KERNEL), c.word("%entry", Launch.EXTENT)
    tables = (("ptr", "%buffers"), ("ptr", "%scalars"))
    with c.when(c.test("eq", extent, 0)):
        c.through(kernel, "void", *tables)
        c.leave()
    chunks, threads = c.word("%entry", Launch.CHUNKS), c.word("%table", Head.THREADS)
    c.call(PARALLEL, "void", ("ptr", kernel), *tables, ("i64", extent), ("i64", chunks), ("i64", threads))
    c.leave()
    return c


# Blocks of memory. Whoever holds the interpreter's lock may take and give.


def _take() -> Code:
    """A block of `size` bytes that was given back before, or a new one; null where there is none."""
    c = Code("take", "ptr", ("i64", "size"), internal=True)
    with c.each(KEPT_BLOCKS) as k:
        entry = c.slot("@blocks", c.op("mul", k, 2))
        with c.when(c.test("eq", c.word(entry, 0), "%size")):
            c.store("i64", 0, entry)
            c.store("i64", c.op("sub", c.word("@kept", 0), "%size"), "@kept")
            c.leave(c.pointer(entry, 1))
    rounded = c.op("and", c.op("add", "%size", 63), -64)
    c.leave(c.call("aligned_alloc", "ptr", ("i64", "64"), ("i64", rounded)))
    return c


def _give() -> Code:
    """Keep a block for `take`, in place of the one that was kept longest ago; a very large one goes."""
    c = Code("give", "void", ("ptr", "block"), ("i64", "size"), internal=True)
    with c.when(c.test("sgt", "%size", KEPT_BYTES // 2)):
        c.call("free", "void", ("ptr", "%block"))
        c.leave()
    with c.forever() as done:
        k = c.word("@kept", 1)
        c.store("i64", c.op("urem", c.op("add", k, 1), KEPT_BLOCKS), "@kept", 8)
        entry = c.slot("@blocks", c.op("mul", k, 2))
        size = c.word(entry, 0)
        held = c.op("sub", c.word("@kept", 0), size)
        with c.when(c.test("ne", size, 0)):
            c.call("free", "void", ("ptr", c.pointer(entry, 1)))
            c.store("i64", 0, entry)
            c.store("i64", held, "@kept")
        more = c.op("add", held, "%size")
        with c.when(c.test("sle", more, KEPT_BYTES)):
            c.store("i64", "%size", entry)
            c.store("ptr", "%block", c.slot(entry, 1))
            c.store("i64", more, "@kept")
            c.jump(done)
    c.leave()
    return c


def _released() -> Code:
    """The destructor of the capsule that an array's memory belongs to."""
    c = Code("released", "void", ("ptr", "capsule"), internal=True)
    block = c.call("PyCapsule_GetPointer", "ptr", ("ptr", "%capsule"), ("ptr", "null"))
    size = c.emit(f"ptrtoint ptr {c.call('PyCapsule_GetContext', 'ptr', ('ptr', '%capsule'))} to i64")
    c.call("give", "void", ("ptr", block), ("i64", size))
    c.leave()
    return c
