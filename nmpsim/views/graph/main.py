"""Extension of Model Explorer that opens bundles, LIR text and ONNX models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from model_explorer import Adapter, AdapterMetadata
from model_explorer import graph_builder as builder

from nmpsim.views.graph.network import read_program_graph


class NmpsimAdapter(Adapter):  # type: ignore[misc]  # model_explorer ships no types
    """Adapter that opens nmpsim's files in Model Explorer."""

    metadata = AdapterMetadata(
        id="nmpsim",
        name="nmpsim",
        description="Bundles, LIR text and ONNX models of nmpsim",
        source_repo="",
        fileExts=["bin", "lir", "txt", "onnx"],
    )

    def convert(self, model_path: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Convert a file to a graph in Model Explorer's format."""
        network = read_program_graph(Path(model_path))
        nodes = [
            builder.GraphNode(
                id=node.id,
                label=node.label,
                namespace=node.namespace,
                attrs=[builder.KeyValue(key, value) for key, value in node.attributes.items()],
                incomingEdges=[
                    builder.IncomingEdge(sourceNodeId=source, targetNodeInputId=str(place))
                    for place, source in enumerate(node.sources)
                ],
                outputsMetadata=[
                    builder.MetadataItem(
                        "0", [builder.KeyValue(key, value) for key, value in node.result.items()]
                    )
                ],
            )
            for node in network.nodes
        ]
        return {"graphs": [builder.Graph(id=network.name, nodes=nodes)]}
