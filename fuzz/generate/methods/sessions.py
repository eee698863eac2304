"""Sessions: statements of the Tensor front end in a row, which NumPy executes, too.

Takes: choices. Gives: the graph of a session's last values (`generate_session`), and its first wrong value
(`find_fault_of_session`). A session makes Tensors, combines them, takes views, assigns through them, realizes some together, calls
compiled functions, differentiates and optimizes. NumPy executes each statement at once, on arrays. Numbers are small integers in
every dtype, so results must have equal bits.

Views follow the front end: an assignment through a view writes to the Tensors that it was made from, and older views keep their
values (`uops.compiler.tensor.core`). A session is a pure function of its choices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from uops.backends.arrays import STORAGE
from uops.backends.conformance.stage_judge import Fault
from uops.backends.front import Tensor, grad, jit, use
from uops.compiler.tensor import capture, nn
from uops.fuzz.generate.declared import EVERYTHING, SupportedOpDtypes
from uops.fuzz.generate.draw import CheckedReplayDraw, draw_permutation
from uops.fuzz.generate.graphs import FuzzCase
from uops.fuzz.generate.methods.calls.answers import Array, ExactAnswer, find_wrong_element
from uops.spec.choices import ChoiceSource
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp

#: Numbers of statements of a session.
STATEMENTS = (4, 6, 9, 14)
#: Greatest magnitude of a value that later statements use.
LIMIT = 50
#: Number of kinds of statements, which may be equal, in a session of few kinds.
KINDS_TOGETHER = 3
#: How often a statement takes one of the `RECENT` values that were drawn or made last.
RECENT_PERCENT, RECENT = 50, 4
#: Numbers that compiled functions take: products and quotients by them are exact.
FLOAT_NUMBERS, INT_NUMBERS = (2.0, 0.0, -0.0, -1.0, 4.0, 0.5), (2, 0, -1, 3)


class View(NamedTuple):
    """A view of one axis: reversed, cut with a step, or two axes exchanged."""

    form: str
    axis: int = 0
    key: tuple[Any, ...] = ()

    def of_tensor(self, t: Tensor) -> Tensor:
        """Return this view of a Tensor."""
        if self.form == "flip":
            return t.flip(self.axis)
        return t.transpose(0, 1) if self.form == "transpose" else t[self.key]

    def of_array(self, x: Array) -> Array:
        """Return this view of an array, in the same memory."""
        if self.form == "flip":
            return np.flip(x, self.axis)
        return np.swapaxes(x, 0, 1) if self.form == "transpose" else x[self.key]


@dataclass(eq=False)
class SessionValue:
    """A Tensor, and the elements that it must have. A view has the value that it was made from, and how."""

    name: str
    tensor: Tensor
    array: Array
    viewed: SessionValue | None = None
    view: View | None = None

    def path_from_root(self) -> list[SessionValue]:
        """Return the values from the first one to this view."""
        return [*(self.viewed.path_from_root() if self.viewed is not None else ()), self]


# Functions that are compiled. They use operators alone, so that they take arrays, too.


def subtract_keywords(*, left: Any, right: Any) -> Any:
    """Return left * 2 - right."""
    return left * 2 - right


def subtract_entries(pair: dict[str, Any]) -> Any:
    """Return the difference of two entries."""
    return pair["a"] - pair["b"] * 3


def multiply_by_number(x: Any, number: float) -> Any:
    """Return x * number."""
    return x * number


def divide_by_number(x: Any, number: float) -> Any:
    """Return x / number."""
    return x / number


def add_or_subtract(x: Any, y: Any, is_added: bool) -> Any:
    """Return the sum or the difference."""
    return x + y if is_added else x - y


def give_several(x: Any, y: Any) -> Any:
    """Return several values, one of them an argument."""
    return x + y, (x, y - x)


def square_times(x: Any, y: Any) -> Any:
    """Return the sum of x * x * y + 3 * x."""
    return (x * x * y + x * 3).sum()


_Function = Callable[..., Any]
#: The functions of which a session compiles two.
COMPILED: tuple[_Function, ...] = (
    subtract_keywords, subtract_entries, multiply_by_number, divide_by_number, add_or_subtract, give_several,
)  # fmt: skip


class Mismatch(Exception):
    """A value of a session that differs from NumPy's."""


class Session:
    """A session that is executed statement by statement.

    With `is_lazy`, nothing is realized, and functions are called without compilation. With `is_reversed`, the values of each
    realization are given in reverse.
    """

    def __init__(self, draw: ChoiceSource, dtypes: tuple[dt.DType, ...], is_lazy: bool, is_reversed: bool = False) -> None:
        self.draw, self.is_lazy, self.is_reversed = draw, is_lazy, is_reversed
        self.dtype = draw.choice(dtypes)
        self.shape = (draw.integer(2, 9),) if draw.chance(40) else (draw.integer(2, 5), draw.integer(2, 6))
        self.values: list[SessionValue] = []
        #: The number that a compiled function got last.
        self._number: float | None = None
        #: What the last statements drew or made.
        self._recent: list[SessionValue] = []
        self.statements: list[str] = []
        #: Name of the statement that is executed, by which findings are told apart.
        self.place = ""
        chosen = [draw.choice(COMPILED) for _ in range(2)]
        #: Functions, and what is called: the same, or their compiled forms.
        self.compiled: list[tuple[_Function, _Function]] = [
            (f, f if is_lazy else jit(f)) for f in chosen if self.dtype.is_float or f is not divide_by_number
        ]

    def execute(self) -> None:
        """Execute statements, and compare all values. Raises Mismatch."""
        for _ in range(2):
            self._make()
        # Half of the sessions have few kinds of statements, so that one kind often follows another (swarm testing, Groce 2012).
        kinds = _STATEMENTS if self.draw.chance(50) else [self.draw.choice(_STATEMENTS) for _ in range(KINDS_TOGETHER)]
        for _ in range(self.draw.choice(STATEMENTS)):
            statement = self.draw.choice(kinds)
            self.place = statement.__name__.strip("_")
            statement(self)
        self.place = "results"
        if self.draw.chance(50):
            self._realize_together(draw_permutation(self.draw, len(self.values)))
        for k in draw_permutation(self.draw, len(self.values)):
            self._compare(self.values[k])

    def _note(self, statement: str) -> None:
        self.statements.append(statement)

    # Choices

    def _draw_elements(self, shape: tuple[int, ...] | None = None) -> Array:
        shape = self.shape if shape is None else shape
        count = int(np.prod(shape))
        return np.array([self.draw.integer(-9, 9) for _ in range(count)]).reshape(shape).astype(STORAGE[self.dtype])

    def _draw_value(self, shape: tuple[int, ...] | None = None) -> SessionValue:
        """Draw a value of this shape: often one that the statement before drew or made."""
        fitting = [v for v in self.values if shape is None or v.array.shape == shape]
        recent = [v for v in fitting if v in self._recent]
        drawn = self.draw.choice(recent if recent and self.draw.chance(RECENT_PERCENT) else fitting)
        self._recent = [drawn, *self._recent][:RECENT]
        return drawn

    def _add(self, tensor: Tensor, array: Array, text: str, viewed: SessionValue | None = None, view: View | None = None) -> None:
        value = SessionValue(f"v{len(self.values)}", tensor, np.array(array), viewed, view)
        self._note(f"{value.name} = {text}")
        self.values.append(value)
        self._recent = [value, *self._recent][:RECENT]

    # Statements

    def _make(self) -> None:
        """Make a Tensor of data."""
        x = self._draw_elements()
        self._add(Tensor(x), x, f"Tensor({x.tolist()})")

    def _combine(self) -> None:
        """Combine two values of one shape."""
        a = self._draw_value()
        b = self._draw_value(a.array.shape)
        form = self.draw.choice(("+", "-", "*", "max"))
        x, y, t, u = a.array, b.array, a.tensor, b.tensor
        if form == "max":  # of zeros of both signs, either one is greatest: the sum with 0 is +0
            array, tensor = np.maximum(x, y) + x.dtype.type(0), t.maximum(u) + 0
        else:
            array, tensor = (x + y, t + u) if form == "+" else (x - y, t - u) if form == "-" else (x * y, t * u)
        self._add(
            tensor.clamp(-LIMIT, LIMIT), np.clip(array, -LIMIT, LIMIT), f"({a.name} {form} {b.name}).clamp({-LIMIT}, {LIMIT})"
        )

    def _combine_with_array_that_changes(self) -> None:
        """Combine a value with an array that its owner changes afterwards."""
        a = self._draw_value()
        x = self._draw_elements(a.array.shape)
        self._add(a.tensor + x, a.array + x, f"{a.name} + array {x.tolist()}, which changes then")
        x[...] = 7

    def _view(self) -> None:
        """Take a view of a value."""
        a = self._draw_value()
        view = self._draw_view(a.array.shape)
        self._add(view.of_tensor(a.tensor), view.of_array(a.array), f"{a.name} viewed by {view}", a, view)

    def _draw_view(self, shape: tuple[int, ...]) -> View:
        axis = self.draw.integer(0, len(shape) - 1)
        n = shape[axis]
        form = self.draw.choice(("flip", "transpose", "cut", "cut", "step"))
        if form == "flip" or (form == "transpose" and len(shape) == 2):
            return View(form, axis)
        first = self.draw.integer(0, n - 1)
        last = self.draw.integer(first + 1, n)
        step = self.draw.integer(1, 2) if form == "step" else 1
        return View("cut", axis, (*(slice(None) for _ in range(axis)), slice(first, last, step)))

    def _assign(self) -> None:
        """Assign to a value, or to a cut of it."""
        a = self._draw_value()
        key: Any = self._draw_view(a.array.shape) if self.draw.chance(50) else None
        target = a.array if key is None else key.of_array(a.array)
        alike = [v for v in self.values if v.array.shape == target.shape]
        if alike and self.draw.chance(50):
            source = self.draw.choice(alike)
            given: Any = source.tensor
            new, text = source.array.copy(), source.name
        else:
            given = self.draw.integer(-9, 9)
            new, text = np.full(target.shape, given, target.dtype), str(given)
        path = a.path_from_root()
        root = path[0].array.copy()
        memory = root
        places = [memory := v.view.of_array(memory) for v in path[1:] if v.view is not None]
        last = places[-1] if places else root
        (last if key is None else key.of_array(last))[...] = new
        for v, place in zip(path, [root, *places]):
            v.array = np.array(place)
        if key is None:
            a.tensor.assign(given)
        elif key.form == "cut" and self.draw.chance(50):
            a.tensor[key.key] = given
        else:
            key.of_tensor(a.tensor).assign(given)
        self._note(f"{a.name}{'' if key is None else f' viewed by {key}'} := {text}")

    def _realize(self) -> None:
        """Realize some values together, in any order."""
        self._realize_together(draw_permutation(self.draw, len(self.values))[: self.draw.integer(1, 4)])

    def _realize_together(self, order: list[int]) -> None:
        order = order[::-1] if self.is_reversed else order
        self._note(f"realize {', '.join(self.values[k].name for k in order)}")
        if not self.is_lazy:
            first, *others = [self.values[k].tensor for k in order]
            first.realize(*others)

    def _read(self) -> None:
        """Compare one value now."""
        self._compare(self._draw_value())

    def _call(self) -> None:
        """Call a compiled function, with arguments in any order where that does not matter."""
        if not self.compiled:
            return
        plain, compiled = self.draw.choice(self.compiled)
        a = self._draw_value()
        b = self._draw_value(a.array.shape)
        order = draw_permutation(self.draw, 2)
        number = self.draw.choice(FLOAT_NUMBERS if self.dtype.is_float else INT_NUMBERS)
        if self._number is not None and self.draw.chance(40):
            number = -self._number  # a number that is equal, or nearly so, must not share what was compiled
        self._number = number
        flag = self.draw.chance(50)

        def call(f: _Function, x: Any, y: Any) -> Any:
            named = [("left", x), ("right", y)], [("a", x), ("b", y)]
            if plain is subtract_keywords:
                return f(**dict(named[0][k] for k in order))
            if plain is subtract_entries:
                return f(dict(named[1][k] for k in order))
            if plain in (multiply_by_number, divide_by_number):
                return f(x, number)
            return f(x, y, flag) if plain is add_or_subtract else f(x, y)

        self._note(f"{plain.__name__} of {a.name}, {b.name}, order {order}, number {number}, flag {flag}")
        with np.errstate(divide="ignore", invalid="ignore"):
            expected = call(plain, a.array, b.array)
        self._compare_results(call(compiled, a.tensor, b.tensor), expected)

    def _differentiate(self) -> None:
        """Differentiate a function by one or both arguments, which may be one Tensor."""
        a = self._draw_value()
        b = self._draw_value(a.array.shape)
        numbers = self.draw.choice(((0,), (1,), (0, 1), (1, 0)))
        if self.is_lazy or not self.dtype.is_float:
            return
        self._note(f"gradients of {square_times.__name__} of {a.name}, {b.name} by {numbers}")
        x, y = a.array, b.array
        derivatives = (x * y * 2 + 3, x * x)
        self._compare_results(grad(square_times, numbers)(a.tensor, b.tensor), tuple(derivatives[k] for k in numbers))

    def _optimize(self) -> None:
        """Take a step of SGD, where some parameters have no gradient."""
        arrays = [self._draw_elements() for _ in range(self.draw.integer(2, 4))]
        i, j = (self.draw.integer(0, len(arrays) - 1) for _ in range(2))
        if not self.dtype.is_float:
            return
        new = [x.copy() for x in arrays]
        new[i] = new[i] - arrays[j]
        new[j] = new[j] - arrays[i]
        params = [Tensor(x) for x in (new if self.is_lazy else arrays)]
        if not self.is_lazy:
            optimizer = nn.SGD(params, lr=0.5)
            (params[i] * params[j] * 2).sum().backward()
            optimizer.step()
        for p, x in zip(params, new):
            self._add(p, x, f"a parameter of {len(arrays)} after a step with a loss of {i} and {j}")

    # Comparison

    def _compare(self, value: SessionValue) -> None:
        self._compare_results(value.tensor, value.array, value.name)

    def _compare_results(self, results: Any, expected: Any, name: str = "result") -> None:
        """Compare Tensors in nested tuples with arrays. Raises Mismatch."""
        if isinstance(expected, tuple):
            if not isinstance(results, tuple) or len(results) != len(expected):
                raise Mismatch(f"{name}: expected {len(expected)} results")
            for k, (r, e) in enumerate(zip(results, expected)):
                self._compare_results(r, e, f"{name}[{k}]")
        elif not self.is_lazy and (wrong := find_wrong_element(ExactAnswer(np.asarray(expected)), results.numpy())):
            raise Mismatch(f"{name}: {wrong}")


_STATEMENTS: tuple[Callable[[Session], None], ...] = (
    *(Session._combine,) * 5, *(Session._view,) * 4, *(Session._assign,) * 5, *(Session._realize,) * 2, *(Session._call,) * 4,
    Session._make, Session._combine_with_array_that_changes, Session._read, Session._differentiate, Session._optimize,
)  # fmt: skip
_DTYPES = (dt.float32, dt.float32, dt.int32, dt.float64, dt.int64, dt.int16)


def generate_session(draw: ChoiceSource, declared: SupportedOpDtypes) -> FuzzCase:
    """Generate the graph of the last values of a session in which nothing is realized before.

    What a backend declares has no effect, so that the choices alone determine the session.
    """
    session = Session(draw, _DTYPES, is_lazy=True)
    session.execute()
    return FuzzCase(*capture(*(v.tensor for v in session.values)))


def rebuild_graph_of_session(choices: Sequence[int]) -> UOp:
    """Return the graph of recorded choices. Raises ValueError for choices of another version of the generator."""
    return generate_session(CheckedReplayDraw(choices), EVERYTHING).graph


def find_fault_of_session(choices: Sequence[int], backend_name: str) -> Fault | None:
    """Execute the session of recorded choices on a backend, twice: the second time, what is realized together is so in reverse.

    Return the first wrong value, or None. Raises ValueError for choices of another version of the generator, and what the backend
    raises to refuse a program.
    """
    for is_reversed in (False, True):
        session = Session(CheckedReplayDraw(choices), _DTYPES, is_lazy=False, is_reversed=is_reversed)
        try:
            with use(backend_name):
                session.execute()
        except Mismatch as e:
            return Fault("session", f"{'; '.join(session.statements)}; then {e} [session: {session.place}]")
    return None
