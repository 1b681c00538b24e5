"""Lowering of a graph to LIR, with one error for all nodes that cannot be lowered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from nmpsim.bundle.metadata import OperatorMapping
from nmpsim.diagnostics import UserError, fail
from nmpsim.frontends.graph.constant_folding import IS_CONSTANT, fold_node
from nmpsim.frontends.graph.nodes import UNSIGNED_OFFSETS, Node
from nmpsim.frontends.graph.operation import GraphLowering, OperatorFunction, call_operator
from nmpsim.frontends.graph.operators import INTEGER_FORMS, OPERATORS
from nmpsim.frontends.graph.problems import INVALID_NODE_ERRORS, UnsupportedOperators
from nmpsim.frontends.imported_model import ImportedModel, UnsupportedError
from nmpsim.lir.nodes import SourcePosition

Operators = Mapping[str, OperatorFunction]
_FUNCTIONS = {op: row.lower for op, row in OPERATORS.items()}


def lower_graph(
    nodes: Sequence[Node],
    lowering: GraphLowering,
    mappings: dict[int, OperatorMapping],
    problems: UnsupportedOperators,
    numerics: str,
    operators: Operators = _FUNCTIONS,
) -> ImportedModel:
    """Lower the nodes of a graph to LIR; return the imported model.

    Parameters
    ----------
    nodes : sequence of Node
        Nodes in an order in which each tensor is computed before it is read.
    lowering : Lowering
        New lowering of the graph.
    mappings : dict of int to OperatorMapping
        Operator number -> what is already known of its lowering.
    problems : Problems
        Problems found before.
    numerics : str
        Numerics profile of the file's reference.
    operators : mapping of str to OperatorFunction
        Operator -> lowering of a node without an integer form.

    Raises
    ------
    UserError
        MODEL002, LIR codes.
    """
    labels = {node.index: node.label for node in lowering.graph.nodes}
    try:
        unsigned = _bind_inputs(lowering)
    except UserError:
        problems.raise_errors()  # problems of the nodes that read it say more
        raise
    _lower_nodes(nodes, lowering, labels, mappings, problems, operators)
    problems.raise_errors()
    outputs = lowering.output_names
    for name in lowering.graph.outputs:
        try:
            lowering.complete_output(name)
        except UnsupportedError as error:
            message = f"output {name} cannot be compiled"
            raise fail(
                "MODEL002", message, place=lowering.place, found=error, expected=error.expected
            ) from error
        if lowering.is_unsigned(name):
            unsigned.add(outputs[name])
    _assign_states(lowering, mappings)
    states = [one.input for one in lowering.graph.states]
    inputs = [one.name for one in lowering.graph.inputs if one.name not in states]
    lowering.builder.sort_variables([*inputs, *outputs.values(), *states])
    return ImportedModel(
        lowering.builder.build(),
        frozenset(unsigned),
        tuple(mappings[index] for index in sorted(mappings)),
        numerics,
        layer_numerics=lowering.layer_numerics,
    )


def _bind_inputs(lowering: GraphLowering) -> set[str]:
    """Add the inputs of the program; return the names of those that are unsigned."""
    unsigned = set()
    for one in lowering.graph.inputs:
        message, place = f"input {one.name} cannot be compiled", lowering.place
        if one.shape is None:
            hint = f"Pass the shape, such as --input-shape {one.name}=1,3,224,224."
            message = f"the shape of input {one.name} is unknown"
            expected = "a shape of constant dimensions"
            raise fail("MODEL002", message, place=place, expected=expected, hint=hint)
        try:
            name = lowering.add_input(one.name, one.dtype, one.shape)
        except UnsupportedError as error:
            raise fail(
                "MODEL002", message, place=place, found=str(error), expected=error.expected
            ) from error
        if one.dtype in UNSIGNED_OFFSETS:
            unsigned.add(name)
    return unsigned


def _assign_states(lowering: GraphLowering, mappings: dict[int, OperatorMapping]) -> None:
    """Store the next values of state tensors; add the layers to the mappings of their operators."""
    try:
        layers = lowering.assign_states()
    except UnsupportedError as error:
        message, expected = "the state of the model cannot be compiled", error.expected
        raise fail(
            "MODEL002", message, place=lowering.place, found=error, expected=expected
        ) from error
    for index, added in layers.items():
        mappings[index] = attrs.evolve(mappings[index], layers=added, why="")


def _lower_nodes(
    steps: Iterable[Node],
    lowering: GraphLowering,
    labels: dict[int, str],
    mappings: dict[int, OperatorMapping],
    problems: UnsupportedOperators,
    operators: Operators,
) -> None:
    """Lower every node.

    After a failure, nodes that read its results are skipped unless the file declares these.
    """
    failed: set[str] = set()
    for step in steps:
        index = step.index
        if failed.intersection(step.operands):
            failed.update(step.results)
            continue
        lowering.builder.span = SourcePosition(0, 0, labels[index])
        before = len(lowering.builder.layers)
        try:
            reason = _lower_node(lowering, step, operators)
            lowering.transpose_outputs(step.results)
        except (UnsupportedError, *INVALID_NODE_ERRORS) as error:
            problems.add_error(index, step.label, error)
            failed.update(name for name in step.results if not lowering.define_placeholder(name))
            continue
        layers = tuple(lowering.builder.layers[before:])
        if index in mappings:  # an operator of the file that is lowered as several nodes
            layers = (*mappings[index].layers, *layers)
        mappings[index] = OperatorMapping(labels[index], layers, "" if layers else reason)


def _lower_node(lowering: GraphLowering, step: Node, operators: Operators) -> str:
    """Lower a node; return why it has no layers, if it has none."""
    if step.integers:
        try:
            return _apply(INTEGER_FORMS[step.kind].lower, lowering, step)
        except UnsupportedError:
            float_nodes, (result,) = step.integers.float_nodes, step.results
            if not float_nodes or lowering.is_defined(result) or step.kind == "Conv":
                raise  # a Conv may have padding that was a node of its own
        lowering.float_labels.add(step.label)
        for node in float_nodes:
            if not lowering.is_defined(node.outputs[0]):
                _lower_node(lowering, node, operators)
        return ""
    values = fold_node(lowering, step)
    if values is not None:
        lowering.define_constant(step.outputs[0], values)
        return IS_CONSTANT
    if step.op not in operators:
        raise UnsupportedError(f"operator {step.op}", "an operator that nmpsim can compile")
    return _apply(operators[step.op], lowering, step)


def _apply(function: OperatorFunction, lowering: GraphLowering, step: Node) -> str:
    lowering.begin_node(step)
    result = call_operator(function, lowering)
    if isinstance(result, str):
        return result
    lowering.define_result(lowering.name, result)
    return ""
