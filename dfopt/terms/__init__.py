"""Accounting rules as one table: a cost is an incidence, which kernels a block holds, times an amount, their options.

`incidence` says how often a block pays. `charges` says what a charge and a term are, `layer` and `kernel` what rules
read, and `rules` has the rules. `table` adds them up without knowing any, `blocks` makes times of the sums, and `least`
has what no option of a kernel avoids.

What is no charge, and why:

- The time of a block from its sums, its limits and the parts of a weight (`blocks`): they do not add up.
- Which blocks there may be (order, passes, sets of a library): questions of the space, not of an amount.
- Seconds of a step from those of its layers, and what a stage holds of their sums: they depend on the plan. Their rules
  are in `step`, and what no mapping beats under thousands of plans is in `bounds`.

A convention is read here, in the judge, and in the physics that both call: `tests/test_conventions.py` has the list.
"""
