"""Backend of ``torch.compile`` that runs models quantized by PT2E on the simulated device.

compiled = torch.compile(model, backend="nmpsim")
outputs = compiled(image)
report = nmpsim.torch_backend.get_last_report()
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from nmpsim import session
from nmpsim.report.data import RunReport

__all__ = ["compile_graph", "get_last_report"]

_STATIC = "_dynamo_static_input_type"
"""Attribute by which PyTorch marks the parameters and buffers among the inputs of a graph."""
_reports: list[RunReport] = []
"""Report of the last run, if there was one."""


def get_last_report() -> RunReport | None:
    """Return the report of the last run of a compiled model; None before the first run."""
    return _reports[0] if _reports else None


def compile_graph(
    graph: torch.fx.GraphModule, example_inputs: Sequence[torch.Tensor]
) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Compile a graph of PyTorch for the default device.

    Parameters
    ----------
    graph : torch.fx.GraphModule
        Graph of a model quantized by PT2E, as ``torch.compile`` passes it.
    example_inputs : sequence of Tensor
        Inputs of the graph. Parameters and buffers among them become constants of the program.

    Returns
    -------
    callable
        Function that takes the inputs of the graph and returns its outputs as tensors.

    Raises
    ------
    UserError
        MODEL002 and COMP codes for a graph that the device does not support.
    """
    static = {
        index: one
        for index, one in enumerate(example_inputs)
        if isinstance(one, torch.nn.Parameter) or getattr(one, _STATIC, None) is not None
    }
    dynamic = [index for index in range(len(example_inputs)) if index not in static]
    with torch.no_grad():
        example = tuple(example_inputs[index] for index in dynamic)
        imported = session.from_torch(_BoundGraph(graph, static).eval(), example)
    bundle = session.compile(imported).bundle
    device = session.Device()

    def run(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        report = device.run(bundle, [inputs[index].detach().numpy() for index in dynamic])
        if report.trap is not None:
            raise RuntimeError(f"the run ended in a trap: {report.trap}")
        _reports[:] = [report]
        return tuple(torch.from_numpy(values.copy()) for values in report.outputs.values())

    return run


class _BoundGraph(torch.nn.Module):  # type: ignore[misc]
    """Graph whose parameters and buffers are no longer inputs."""

    def __init__(self, graph: torch.fx.GraphModule, static: dict[int, torch.Tensor]) -> None:
        super().__init__()
        self._graph, self._static = graph, static

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Return the outputs of the graph for its other inputs."""
        others = iter(inputs)
        total = len(inputs) + len(self._static)
        values = [self._static[i] if i in self._static else next(others) for i in range(total)]
        return self._graph(*values)
