"""The assignment-matrix program: a plan as one MILP, generated from the table of charges (:mod:`dfopt.terms`).

``s_ko`` says which option each kernel takes and ``A_kb`` which block holds it (the paper's matrix A). All else follows:
`choices` has a kernel in a block together with options of some kernels, `counting` how often blocks pay each incidence
(the paper's B, D, L and H), `blocks` what a block takes, `places` which blocks there may be, `stages` what a pipeline
stage takes and holds, and `plan_model` puts them together. No module here states an accounting rule.
"""
