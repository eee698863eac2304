"""The functions of the compiler that random programs reach.

`uops fuzz --reach` counts, for each function of the kernel optimizer and of the backend's renderer, the cases in which it ran
while a program was compiled whose result was then judged. `python -m uops.fuzz.reach REPORT...` merges such reports and names
the functions that no case reached.

- `functions`: the functions that are counted, read off the sources.
- `recorder`: the import hook that makes them record their calls.
- `serve`: the process that examines cases, with this hook.
"""
