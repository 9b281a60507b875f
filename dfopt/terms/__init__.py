"""The accounting rules as one table of charges, and all that follows from it without knowing a rule.

A *block* is a set of kernels that one on-chip partition runs. A *charge* is an incidence times an amount. The incidence
says how often a block pays the charge, from the kernels that it holds. The amount says how much it pays, from the
options (sharding schemes) of a few kernels.

- `incidence` has the kinds of incidence. `charges` says what a charge and a term (an accounting rule) are.
- `layer` and `kernel` are what rules read. `rules` has the rules.
- `table` adds charges up, and `blocks` makes times of the sums.
- `figures`, `converted` and `sharded` have the same rules as arrays over options, for the search. `least` has what no
  option of a kernel avoids.

What is no charge, and why:

- The time of a block from its sums, its limits and the parts of a weight (`blocks`): they do not add up.
- Which blocks there may be (order, passes, sets of a library): questions of the space, not of an amount.
- Seconds of a step from those of its layers, and what a stage holds of their sums: they depend on the plan. Their rules
  are in `step`. What no mapping beats under thousands of plans is in `bounds`.

An assumption that changes a price is read in three places: here, in the judge (the independent evaluator), and in the
physics that both call. `tests/test_conventions.py` has the list.
"""
