"""The mapping problem as regions of one branch and bound (:mod:`dfopt.bnb`): plans that read alike, and options left.

A region is a class of plans under which a layer costs a chip the same, with the options of kernels and the blocks that
are left (:class:`~dfopt.regions.region.Region`). Bounds of a layer hold for all plans of the class; what a step makes
of a layer is worked out for all of them at once (:mod:`dfopt.terms.bounds.steps`). In the order of a search:

- ``space``, ``variants``, ``lattices``, ``arcs``, ``numbering``, ``cuts``, ``plan_group``, ``classes``: plans in
  classes, and the lattice of down-sets as arrays, with numbers of partitions and cuts into pipeline stages where these
  are asked for;
- ``facts``, ``capacity``, ``passes``, ``relaxations``: what is shown of a region, and the bounds that are read off;
- ``reductions``, ``branching``, ``levels``, ``sharded_first``: what of it cannot matter, and how it is divided;
- ``pricing``, ``composed``, ``chains``, ``leaves``, ``matrices``, ``fusing``: exact prices, and what decides a region;
- ``plan_programs``: what decides a plan whose pipeline stages are open, where they are not listed as cuts;
- ``heuristics``, ``judged``: mappings that the judge has valued;
- ``problem``: all of these as a problem for the engine.
"""
