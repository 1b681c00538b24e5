"""How a layer is tiled to fit the scratchpads, and which core does which.

Each module plans one kind of operation; all give :class:`~nmpsim.compiler.tiling.plan.LayerPlan`.
"""
