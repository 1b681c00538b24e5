"""The compiler from LIR modules to bundles.

Read :func:`nmpsim.compiler.driver.compile_module` first, which runs the passes in order.
"""
