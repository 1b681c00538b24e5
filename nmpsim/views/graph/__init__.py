"""Networks in Google's Model Explorer: bundles, LIR text and ONNX models.

``model-explorer NET.bin --extensions=nmpsim.views.graph`` imports ``main`` of this package, which
opens them. ``node_data`` is what Model Explorer shows of a run on a graph.
"""
