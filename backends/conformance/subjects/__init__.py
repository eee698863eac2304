"""The cells of rows that judge no backend: those of the front end, of the compiler and of the specification (R171).

Each module has the cases of one subject, each case a question with an answer per cell:

- `functions`: the steps of `@function` (front end);
- `stages`: the stages of the compiler, by the programs of the suite, for a target;
- `properties`: the derived properties and the order of loops (specification).

`run` asks them and gives a `ConformanceRun`, whose report has the form of a backend's. A report is of one subject, so that no cell
of another counts in a backend's score.
"""
