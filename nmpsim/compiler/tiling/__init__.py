"""Tiling of layers: division of their work into tiles that fit a scratchpad, and among cores.

:mod:`~nmpsim.compiler.tiling.planner` lists the planner of each kind of operation;
:class:`~nmpsim.compiler.tiling.plan.PlanBuilder` builds all plans.
"""
