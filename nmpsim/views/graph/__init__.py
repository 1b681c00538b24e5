"""Networks in Google's Model Explorer.

``model-explorer NET.bin --extensions=nmpsim.views.graph`` opens bundles, LIR text and
ONNX models: it imports ``main`` of this package. ``node_data`` is what Model Explorer shows of a
run on a graph.
"""
