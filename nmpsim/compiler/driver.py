"""The compiler's passes in order: from a module to a bundle."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs

from nmpsim.bundle.debug import make_debug_sections
from nmpsim.bundle.file import BundleFile
from nmpsim.bundle.formulas import CustomFormulas
from nmpsim.bundle.limits import ATTRIBUTE_NUMBER
from nmpsim.bundle.metadata import (
    HostOperand,
    Layer,
    LayerClaim,
    Metadata,
    Normalization,
    OperatorMapping,
    OwnedResults,
    ProgramStep,
    Tensor,
)
from nmpsim.bundle.write import BundleBuilder
from nmpsim.compiler.assign import (
    assign_numerics,
    check_custom_formulas,
    expand_layer_numerics,
)
from nmpsim.compiler.c_kernels import KernelCall, KernelProgram, add_layer_record
from nmpsim.compiler.emit import Emitter
from nmpsim.compiler.fuse import assign_clipped_sides, copy_fused_numerics, fuse_clips
from nmpsim.compiler.numerics import (
    DEFAULT_NUMERICS,
    get_profile,
    get_profile_name,
)
from nmpsim.compiler.operations import BufferView, Operation
from nmpsim.compiler.overflow import find_overflow_warning
from nmpsim.compiler.passes.batch import make_batch_module
from nmpsim.compiler.placement import assign_placement
from nmpsim.compiler.program_memory import ProgramMemory
from nmpsim.compiler.resolve import (
    find_inputs_and_outputs,
    get_instruction_place,
    resolve_operands,
)
from nmpsim.compiler.tiling.batch_chains import MAX_IMAGES, choose_batch_chains, plan_batch
from nmpsim.compiler.tiling.chain_buffers import add_constants, record_packed_weights
from nmpsim.compiler.tiling.chain_division import ChainDivision, divide_chain
from nmpsim.compiler.tiling.chain_layers import make_chain, read_chain_layer
from nmpsim.compiler.tiling.chain_owners import list_owned_ranges
from nmpsim.compiler.tiling.chain_plan import plan_chain
from nmpsim.compiler.tiling.chain_search import ChainSearch, ChosenChain
from nmpsim.compiler.tiling.context import PlanningContext
from nmpsim.compiler.tiling.cost_model import DramModel
from nmpsim.compiler.tiling.load_ahead import load_ahead
from nmpsim.compiler.tiling.plan import InstructionSequence, LayerPlan
from nmpsim.compiler.tiling.planner import make_tiling_options
from nmpsim.compiler.tiling.search import (
    CHAIN,
    DEFAULT_TILING,
    TILINGS,
    Describe,
    LayerName,
    TiledLayer,
    TilingSearch,
)
from nmpsim.compiler.tiling.simulate import LayerCostEstimate, order_instructions, simulate_fully
from nmpsim.config import DeviceConfig
from nmpsim.diagnostics import Diagnostic, Place, UserError, fail, list_alternatives, quote
from nmpsim.lir.host_execution import find_unsupported_reason
from nmpsim.lir.nodes import Module, TensorType
from nmpsim.lir.opcode import OpcodeKind
from nmpsim.timing import get_costs


def compile_module(
    module: Module,
    config: DeviceConfig,
    *,
    numerics: str = DEFAULT_NUMERICS,
    layer_numerics: Mapping[str, str] = MappingProxyType({}),
    formulas: CustomFormulas | None = None,
    fuse_activations: bool = True,
    tiling: str = DEFAULT_TILING,
    images_per_core: int = 0,
    kernels: KernelProgram | None = None,
    on_tiling: Callable[[TiledLayer], None] | None = None,
    unsigned: Collection[str] = (),
    operators: Sequence[OperatorMapping] = (),
    normalizations: Sequence[Normalization] = (),
    on_layer: Callable[[int, int, str], None] | None = None,
    on_warning: Callable[[str], object] | None = None,
) -> BundleFile:
    """Compile a verified module with constants to a bundle.

    The bundle keeps references to the constants, which must not change.

    Parameters
    ----------
    module : Module
        Verified module with attached constants.
    config : DeviceConfig
        The device to compile for.
    numerics : str
        Numerics profile of all layers.
    layer_numerics : mapping of str to str
        Profiles of single layers, named as for :func:`~nmpsim.lir.layers.find_layer`.
    formulas : CustomFormulas, optional
        Formulas that the device uses in place of the standard ones; ``numerics`` is their base.
    fuse_activations : bool
        Whether activations that only clip are fused into the preceding operation.
    tiling : str
        One of ``TILINGS``.
    images_per_core : int
        Complete images that each core computes, at most ``MAX_IMAGES``. The program then computes
        a batch, with this number of images for each core along the first axis. By default all cores
        compute one image together.
    kernels : KernelProgram, optional
        C functions that compute layers in place of the compiler's code.
    on_tiling : callable, optional
        Called with the tiling of each device layer.
    unsigned : collection of str
        Inputs and outputs that are uint8 or uint16 for the user.
    operators : sequence of OperatorMapping
        Mapping of the operations of the model's file, if the module was imported.
    normalizations : sequence of Normalization
        Normalization of images in the model's file, if the module was imported.
    on_layer : callable, optional
        Called before each layer with the number of compiled layers, the total and its name.
    on_warning : callable, optional
        Called with each warning.

    Raises
    ------
    UserError
        COMP001 for an unsupported operation, COMP002 for one that does not fit, ARG001 for a layer
        with two profiles or an invalid number of images.
    """
    _check_batch(images_per_core)
    if images_per_core and kernels:
        message = "kernels compute one image on all cores, but each core computes complete images"
        raise fail("ARG001", message, hint="Leave out --kernel or --batch-cores.")

    def make_operations(module: Module) -> tuple[Operation, ...]:
        _, resolved = resolve_operands(module)
        placed = assign_placement(assign_numerics(resolved, numerics, None, formulas), config)
        if layer_numerics:
            layers = fuse_clips(placed) if fuse_activations else placed
            by_name = expand_layer_numerics(layers, layer_numerics)
            profiled = assign_numerics(resolved, numerics, by_name, formulas)
            placed = assign_placement(profiled, config)
        fused = fuse_clips(placed)
        operations = fused if fuse_activations else copy_fused_numerics(placed, fused)
        return assign_clipped_sides(operations)

    image_operations = operations = make_operations(module)
    if images_per_core:
        module = make_batch_module(module, config.cores_count * images_per_core)
        operations = make_operations(module)
    weights, _ = resolve_operands(module)
    if tiling not in TILINGS:
        expected = list_alternatives(TILINGS)
        found = f"tiling={quote(tiling)!r}"
        raise fail("COMP001", "unknown value of tiling", found=found, expected=expected)
    search = TilingSearch(tiling, config, on_tiling)
    if on_warning is not None:
        for op in operations:
            warning = find_overflow_warning(op, get_instruction_place(op.instruction, module.file))
            if warning:
                on_warning(warning)
    if formulas is not None:
        check_custom_formulas(formulas, operations)
    stored = "" if formulas is None else formulas.text
    chains: tuple[ChosenChain, ...] = ()
    weighted: dict[int, Any] = {}
    parts = module, config, weights, operations, numerics, search, stored, kernels
    # Debugging needs outputs of layers in DRAM, and chains cannot be removed next to kernels.
    has_chains = images_per_core > 0 or (tiling == CHAIN and kernels is None)
    if has_chains:
        trial = _Compilation(*parts, image_operations=image_operations, weighted=weighted)
        chains = trial.choose_chains(images_per_core)
    compilation = _Compilation(*parts, chains, image_operations, weighted, has_chains)
    said = on_layer or (lambda done, total, name: None)
    return compilation.bundle(said, unsigned, operators, normalizations)


def _check_batch(images_per_core: int) -> None:
    """Raise UserError (ARG001) for an invalid number of images."""
    if not 0 <= images_per_core <= MAX_IMAGES:
        raise fail(
            "ARG001",
            "the number of images for each core is out of range",
            found=images_per_core,
            expected=f"1 to {MAX_IMAGES}, or 0 for one image on all cores",
        )


def find_unsupported_operations(
    module: Module,
    config: DeviceConfig,
    *,
    numerics: str = DEFAULT_NUMERICS,
    instruction_numerics: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[tuple[Operation, Diagnostic]]:
    """Yield each operation that cannot be compiled, with its error.

    ``instruction_numerics`` has the profiles of single instructions by name.
    """
    weights, resolved = resolve_operands(module)
    operations = fuse_clips(
        assign_placement(assign_numerics(resolved, numerics, instruction_numerics), config)
    )
    search = TilingSearch("simple", config, None)
    try:
        compilation = _Compilation(module, config, weights, operations, numerics, search)
    except UserError as error:  # the activations do not fit
        yield from ((operations[0], one) for one in error.diagnostics)
        return
    for op in operations:
        try:
            compilation.check(op)
        except UserError as error:
            yield from ((op, one) for one in error.diagnostics)


@attrs.define
class _Compilation:
    """Compilation of placed and fused operations."""

    _module: Module
    _config: DeviceConfig
    _weights: Mapping[str, BufferView]
    _operations: tuple[Operation, ...]
    _numerics: str
    _search: TilingSearch
    _formulas: str = ""
    _kernels: KernelProgram | None = None
    _chains: Sequence[ChosenChain] = ()
    _image_operations: tuple[Operation, ...] = ()
    """Operations for one image, if each core computes complete images, else all operations."""
    _weighted: dict[int, Any] = attrs.field(factory=dict)
    """Layers with weights by the identity of their operation, for all planning contexts."""
    _has_chains: bool = False
    """Whether the layers need not be separate: with chains, and loads ahead of barriers."""
    _model: DramModel = attrs.field(init=False)
    _functions: Mapping[int, str] = attrs.field(init=False)
    """C function of each layer with a kernel, by the index of the layer."""
    _builder: BundleBuilder = attrs.field(init=False)
    _memory: ProgramMemory = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        kernels, self._model = self._kernels, DramModel(get_costs(self._config))
        self._functions = kernels.find_layers(self._operations) if kernels else {}
        self._builder = BundleBuilder(kernels.program if kernels else None)
        self._memory = ProgramMemory(
            self._module,
            self._builder,
            self._weights,
            self._operations,
            self._config,
            [(one.chain.first, one.chain.last) for one in self._chains],
        )

    def choose_chains(self, images_per_core: int) -> tuple[ChosenChain, ...]:
        """Choose the chains that take the fewest cycles, or those with complete images."""
        operations, config, memory = self._image_operations, self._config, self._memory
        read = [
            None if index in self._functions else read_chain_layer(index, op, self._context(op))
            for index, op in enumerate(operations)
        ]
        always = frozenset(view.buffer.name for view in self._weights.values())
        if images_per_core:
            return tuple(
                choose_batch_chains(
                    operations,
                    read,
                    always,
                    images_per_core,
                    memory,
                    self._model,
                    config,
                    self._module.file,
                )
            )
        options = [
            None if op.host_reason else make_tiling_options(op, self._context(op))
            for op in operations
        ]

        def estimate(index: int, is_rough: bool) -> LayerCostEstimate | None:
            name, option = self._layer_name(index, operations[index]), options[index]
            if option is None:
                return None
            return self._search.estimate_cost(name, option, is_rough=is_rough)

        search = ChainSearch(memory, self._model, config)
        return tuple(search.choose_chains(operations, read, estimate, always))

    def bundle(
        self,
        on_layer: Callable[[int, int, str], None],
        unsigned: Collection[str],
        operators: Sequence[OperatorMapping],
        normalizations: Sequence[Normalization],
    ) -> BundleFile:
        """Plan all layers, then emit them."""
        chained = {
            i: one for one in self._chains for i in range(one.chain.first, one.chain.last + 1)
        }
        code: dict[int, InstructionSequence | KernelCall] = {}
        described: dict[int, Describe] = {}
        divisions: dict[int, ChainDivision] = {}
        emitter = Emitter(self._builder, self._config.cores_count, len(self._operations))
        layers = []
        for index, op in enumerate(self._operations):
            on_layer(index, len(self._operations), op.instruction.name)
            chosen = chained.get(index)
            if chosen is not None:
                last = chosen.chain.last
                if index == chosen.chain.first:
                    described[last] = chosen.describe
                    code[last], divisions[last] = self._plan_chain(chosen)
                images = self._config.cores_count * chosen.tiling.images or 1
                macs = images * chosen.count_macs(index)
                layer = self._layer(index, op, last, macs)
                is_kept = chosen.keeps_in_scratchpads(index)
                layers.append(attrs.evolve(layer, in_scratchpads=is_kept))
                continue
            if index in self._functions:
                code[index], layer = self._plan_kernel(index, op, emitter.take_barrier())
                layers.append(layer)
                continue
            macs = 0
            if not op.host_reason:
                plan, described[index] = self._plan(index, op)
                code[index], macs = order_instructions(plan, index), plan.macs
            layers.append(self._layer(index, op, index, macs))
        host_steps = {
            index: self._host_step(index, op)
            for index, op in enumerate(self._operations)
            if op.host_reason
        }
        inputs, outputs = (
            tuple(map(self._tensor, views)) for views in find_inputs_and_outputs(self._module)
        )
        names = {one.name for one in inputs} & {one.name for one in outputs}
        states = tuple(
            attrs.evolve(self._tensor(self._weights[initial]), name=name)
            for name, initial in self._module.states.items()
            if name in names
        )
        self._memory.add_symbols()
        steps: list[ProgramStep] = []
        owned: dict[int, list[OwnedResults]] = {}
        for is_host, group in itertools.groupby(range(len(layers)), lambda i: i in host_steps):
            indices = tuple(group)
            if is_host:
                steps += [host_steps[index] for index in indices]
                continue
            emitter.begin_segment()
            own = {index: code[index] for index in indices if index in code}
            for barrier, one in self._load_ahead(own).items():
                if isinstance(one, KernelCall):
                    emitter.add_call(one, barrier)
                    continue
                addresses = emitter.add_sequence(one, barrier)
                if barrier in divisions:
                    for item, layer_index, *ends in list_owned_ranges(divisions[barrier], one):
                        results = OwnedResults(int(addresses[item]), *ends)
                        owned.setdefault(layer_index, []).append(results)
                if self._search.on_tiling:
                    self._search.on_tiling(described[barrier](simulate_fully(one, self._model)))
            steps.append(ProgramStep("device", indices))
        entries = iter(emitter.emit_code())
        constants, packed = self._memory.constants, self._memory.packed
        for name, chunks in make_debug_sections(self._module, constants, packed).items():
            self._builder.set_debug_section(name, chunks)
        return self._builder.build_file(
            Metadata(
                program=self._module.name,
                source=self._module.file or "",
                numerics=self._numerics,
                device=self._config.settings(),
                inputs=inputs,
                outputs=outputs,
                layers=tuple(
                    attrs.evolve(layer, owned=tuple(owned.get(layer.index, ()))) for layer in layers
                ),
                steps=tuple(
                    attrs.evolve(step, entry=next(entries)) if step.kind == "device" else step
                    for step in steps
                ),
                unsigned=tuple(sorted(unsigned)),
                states=states,
                operators=tuple(operators),
                normalizations=tuple(normalizations),
                formulas=self._formulas,
            )
        )

    def _load_ahead(
        self, code: Mapping[int, InstructionSequence | KernelCall]
    ) -> Mapping[int, InstructionSequence | KernelCall]:
        """Move loads of constants ahead of barriers; return the code after each barrier number."""
        sequences = [one for one in code.values() if isinstance(one, InstructionSequence)]
        if not self._has_chains or len(sequences) < len(code):
            return code
        capacity = self._config.scratchpad_bytes
        return dict(
            zip(code, load_ahead(sequences, list(code), self._model, capacity), strict=True)
        )

    def check(self, op: Operation) -> None:
        """Raise the error of planning a layer, if any."""
        if op.host_reason:
            self._check_host(op)
        else:
            options = make_tiling_options(op, self._context(op))
            options.build(options.simple, False)

    def _plan(self, index: int, op: Operation) -> tuple[LayerPlan, Describe]:
        options = make_tiling_options(op, self._context(op))
        return self._search.choose_tiling(self._layer_name(index, op), options)

    def _plan_kernel(self, index: int, op: Operation, barrier: int) -> tuple[KernelCall, Layer]:
        """Plan the call of a layer's C function; return it with the layer."""
        assert self._kernels is not None
        function = self._functions[index]
        options = make_tiling_options(op, self._context(op))
        plan = options.build(options.simple, True)
        record = add_layer_record(op, (index, barrier), plan, self._memory, self._config)
        call = self._kernels.make_call(function, record, self._config)
        layer = self._layer(index, op, index, plan.macs)
        return call, attrs.evolve(layer, claim=None, operation=f"{function} (C)")

    @staticmethod
    def _layer_name(index: int, op: Operation) -> LayerName:
        return LayerName(index, op.last_fused.instruction.name, op.instruction.opcode)

    def _plan_chain(self, chosen: ChosenChain) -> tuple[InstructionSequence, ChainDivision]:
        """Plan a chosen chain with final addresses, and return its division."""
        read = [
            read_chain_layer(layer.index, op, self._context(op))
            for layer in chosen.chain.layers
            for op in [self._image_operations[layer.index]]
        ]
        layers = [one for one in read if one is not None]
        needed = frozenset(
            chosen.chain.tensors[name].view.buffer.name for name in chosen.chain.stored
        )
        chain = make_chain(
            layers,
            needed,
            self._config.dram_row_bytes,
            has_complete_images=chosen.tiling.images > 0,
        )
        division = chain and divide_chain(chain, chosen.tiling, self._config)
        make_plan = plan_batch if chosen.tiling.images else plan_chain
        plan = division and make_plan(division, self._config, add_constants(self._memory))
        if chain is None or not division or not plan:
            raise RuntimeError("a chain was chosen that cannot be planned")
        record_packed_weights(chain, plan.groups, self._memory)
        return plan.sequence, division

    def _context(self, op: Operation) -> PlanningContext:
        profile, place = get_profile(op), self._place(op)
        name, config = op.instruction.name, self._config
        return PlanningContext(name, config, profile, place, self._memory, self._weighted)

    def _place(self, op: Operation) -> Place:
        return get_instruction_place(op.instruction, self._module.file)

    def _tensor(self, view: BufferView) -> Tensor:
        quant = view.type.quant
        if quant is not None and quant.scale == 0:  # Glow marks a meaningless scale by 0
            quant = None
        return Tensor(
            name=view.name,
            elem=view.type.elem,
            shape=view.shape,
            address=self._memory.get_address(view),
            scale=quant.scale if quant else None,
            offset=quant.offset if quant else None,
        )

    def _layer(self, index: int, op: Operation, barrier: int, macs: int) -> Layer:
        last = op.last_fused.instruction
        return Layer(
            index=index,
            name=last.name,
            number=last.number,
            line=last.span.line,
            op=op.instruction.opcode,
            placement="host" if op.host_reason else "device",
            output=self._tensor(op.output),
            operand=op.output.name,
            reason=op.host_reason,
            fused=(op.instruction.name, *(f.instruction.name for f in op.fused))
            if op.fused
            else (),
            barrier=None if op.host_reason else barrier,
            macs=macs,
            numerics=get_profile_name(op),
            operation=op.operation_name,
            claim=None if op.host_reason else self._claim(op),
        )

    def _claim(self, op: Operation) -> LayerClaim:
        """Return the claim that a layer computes an operation on whole tensors."""
        has_pair = op.kind in (OpcodeKind.PAIR, OpcodeKind.BATCHED_ADD, OpcodeKind.PRODUCT)
        top, left, *_ = op.get_integers("Pads") or (0, 0)
        inputs = op.operands[1 : 3 if has_pair else 2]
        return LayerClaim(tuple(map(self._tensor, inputs)), top, left)

    def _check_host(self, op: Operation) -> None:
        """Raise UserError (COMP001) if the host does not support an operation."""
        opcode = op.instruction.opcode
        numerics = get_profile(op).name
        reason = find_unsupported_reason(
            opcode, [view.type.dtype for view in op.operands], numerics
        )
        if reason is not None:
            raise fail(
                "COMP001",
                f"neither the device nor the host supports {opcode}",
                place=self._place(op),
                found=f"on the host: {reason}; on the device: {op.host_reason}",
                expected="an operation of docs/operations.md, with the types listed there",
                hint="Change the operation or the types of its tensors.",
            )
        if op.kind is OpcodeKind.AVERAGE_POOL and op.output.is_narrow:
            get_profile(op).get_factor_words(op, self._place(op))  # raises if the profile lacks it
        if opcode == "softmax" and op.output.is_narrow:
            beta = op.get_number("Beta", 1.0)
            get_profile(op).check_softmax(op.operands[1], op.output, beta, self._place(op))

    def _host_step(self, index: int, op: Operation) -> ProgramStep:
        self._check_host(op)
        operands = tuple(
            HostOperand(_role(operand.kind), self._tensor(view))
            for operand, view in zip(op.instruction.operands, op.operands, strict=True)
        )
        attributes = {
            key: _as_stored(value)
            for key, value in op.instruction.attributes.items()
            if not isinstance(value, TensorType)
        }
        return ProgramStep(
            "host",
            (index,),
            opcode=op.instruction.opcode,
            operands=operands,
            attributes=attributes,
            numerics=get_profile(op).name,
            clipped_sides=op.clipped_sides,
        )


def _as_stored(value: Any) -> Any:
    """Return an attribute as stored in a bundle, large integers as real numbers."""
    if isinstance(value, tuple):
        return [_as_stored(item) for item in value]
    if isinstance(value, int) and ATTRIBUTE_NUMBER.find_problem(value):
        return float(value)
    return value


def _role(kind: str) -> Any:
    return kind.removeprefix("@")
