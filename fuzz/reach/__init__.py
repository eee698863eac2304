"""The functions and lines of the compiler that random programs reach.

`uops fuzz --reach` counts, for each function of the kernel optimizer and of the backend's renderer, the cases in which it ran
while a program was compiled whose result was then judged. `python -m uops.fuzz.reach REPORT...` merges such reports and names
the functions that no case reached.

A campaign may be directed at changed lines: it draws the kinds of programs whose cases run them. A hunt for a mutant is directed at
what the mutant changes.

- `functions`: the functions that are counted, read off the sources.
- `lines`: the changed lines of a file, and the statements that contain them.
- `recorder`: the import hook that makes functions or lines record that they ran.
- `serve`: the process that examines cases, with this hook.
- `try_kinds`: the process that tries each kind of programs, with this hook on lines.
- `directed`: the kinds that a directed campaign draws.
- `changes`: the lines that differ from a revision, for `uops fuzz --changed-since`.
"""
