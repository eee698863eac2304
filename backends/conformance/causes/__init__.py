"""Causes of failing cells: tested explanations of wrong values, and what ended a program.

Takes: the expectation of a case, a segment of it, and the backend's array. Gives: the elements that each cause explains. A cause is
a hypothesis, which is tested in one of two ways:

- `programs`: the backend computed another program, such as one that divides by a multiplication with the reciprocal. Every element
  of the segment must be an allowed result of that program, those that are right for the case's own program as well;
- `elements`: a property of the expected and the given element, such as a NaN where a number is expected;
- `find`: both of them asked in order. An element to which none applies stays unexplained.

`traits` are causes that a backend declares. `summary` counts the cells of a run by cause. If a program gives no result, the cause
is its exception or refusal without numbers, a timeout, a crash or a trap. An output of another form is a cause, too.
"""
