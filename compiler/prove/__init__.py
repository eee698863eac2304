"""Proofs of the rewrite rules and of the OptOps.

`semantics` says what each op means to the prover, over the representations of `model`, with `casts`; `smt` holds terms and the
text of queries. `typings` lists the dtypes for which a rule has to hold, `obligations` makes the queries from the live rule,
`solver` and `worker` ask Z3 in processes of its own, `verdicts` decides, `campaign` proves a set of rules against the `ledger`,
and `admission` lets only proved rules fire. `optops` states what OptOps do to iterations, as laws. `counterexample` makes a
refutation a pair of graphs, for whoever can run them.

What a proof rests on, beside Z3: that an op of a graph means what `semantics` says (compared with the exact interpreter), that the
matcher discharges conditions as they are meant (min_max of `uops.spec.ir.derive`, equality of sums by `uops.compiler.ir.affine`),
that `Rule.apply` instantiates the patterns that were proved, and for rules whose witness `evaluates` a pattern, the constant
folder.
"""
