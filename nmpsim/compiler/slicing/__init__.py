"""How a layer is cut into tiles that fit the scratchpads, and which core does which.

Each module plans one kind of operation; all give :class:`~nmpsim.compiler.slicing.plan.LayerPlan`.
"""
