"""Proofs of the rewrite rules and of the OptOps.

`semantics` and `casts` encode ops over the representations of `model`, and `solver/smt` holds terms and the text of queries.
`typings` enumerates the dtypes for which a rule has to hold. `obligations` builds queries from the live rule. `solver` and
`worker` ask Z3 in processes of its own. `verdicts` decides one obligation. `campaign` proves a set of rules against the
`ledger`, and `admission` admits only proved rules. `optops` and `identities` state laws of OptOps and of index arithmetic.
`counterexample` turns a refutation into graphs that an interpreter can run.

Takes: rules. Gives: proofs, or counterexamples. Trusted, beside Z3:

- an op of a graph means what `semantics` says (compared with the exact interpreter),
- the matcher discharges conditions by their meaning: min_max of `uops.spec.ir.derive`, equality of sums by
  `uops.compiler.ir.affine`,
- `Rule.apply` instantiates the patterns that were proved,
- the constant folder, for rules whose witness `evaluates` a pattern.
"""
