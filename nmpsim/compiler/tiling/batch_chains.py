"""Batches with complete images on each core: chains of all layers, which cores do not divide.

Each core runs the same instructions on its own images. The images of a batch are consecutive in
DRAM. Each core loads all constants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs
import numpy as np

from nmpsim.compiler.operations import Operation
from nmpsim.compiler.program_memory import ProgramMemory
from nmpsim.compiler.resolve import get_instruction_place
from nmpsim.compiler.tiling.chain_buffers import (
    PlaceGroup,
    count_needed_bytes,
    estimate_addresses,
)
from nmpsim.compiler.tiling.chain_division import ChainDivision, divide_chain
from nmpsim.compiler.tiling.chain_layers import Chain, ReadLayer
from nmpsim.compiler.tiling.chain_plan import ChainPlan, plan_chain
from nmpsim.compiler.tiling.chain_rows import ChainTiling, Strips, divide_rows
from nmpsim.compiler.tiling.chain_search import GROUPS, ChainFinder, ChosenChain
from nmpsim.compiler.tiling.compiled.items import ARGUMENT, KIND, WAIT
from nmpsim.compiler.tiling.cost_model import DramModel
from nmpsim.compiler.tiling.grid import Integers
from nmpsim.compiler.tiling.plan import InstructionSequence, UnitInstructions, get_word_offsets
from nmpsim.compiler.tiling.search import TilingTrial
from nmpsim.compiler.tiling.simulate import simulate_fully
from nmpsim.config import DeviceConfig
from nmpsim.diagnostics import Place, fail
from nmpsim.isa.table import Unit

MAX_IMAGES = 256
"""Most images of a core."""
_ONE_STRIP = Strips.from_counts([1])


def choose_batch_chains(
    operations: Sequence[Operation],
    read: Sequence[ReadLayer | None],
    always: frozenset[str],
    images: int,
    memory: ProgramMemory,
    model: DramModel,
    config: DeviceConfig,
    file: str | None,
) -> Iterator[ChosenChain]:
    """Yield the longest chains in which each core computes ``images`` complete images.

    The operations are those for one image, and the addresses those of the batch. ``file`` is the
    file of the module. Other parameters are as for
    :meth:`~.chain_search.ChainSearch.choose_chains`.

    Raises
    ------
    UserError
        COMP002 if the tensors of a chain do not fit a scratchpad.
    """
    finder = ChainFinder(operations, read, always, config)

    def make_chain(first: int, last: int) -> Chain | None:
        chain = finder.make_chain(first, last, has_complete_images=True)
        is_possible = chain is not None and divide_rows(chain, _ONE_STRIP)[1].all()
        return chain if is_possible else None

    last = -1
    for first in range(len(read)):
        chain = make_chain(first, first) if first > last else None
        while chain is not None:
            last = chain.last
            longer = make_chain(first, last + 1) if last + 1 < len(read) else None
            if longer is None:
                place = get_instruction_place(operations[chain.first].instruction, file)
                yield _choose_tiling(chain, images, memory, model, config, place)
            chain = longer


def _choose_tiling(
    chain: Chain,
    images: int,
    memory: ProgramMemory,
    model: DramModel,
    config: DeviceConfig,
    place: Place,
) -> ChosenChain:
    """Return a chain with the fastest simulated size and order of its loads of constants."""
    first = ChainTiling(1, images=images)
    found = []
    for tiling in (first, *(first._replace(group_bytes=a, loads_ahead=b) for a, b in GROUPS)):
        division = divide_chain(chain, tiling, config)
        plan = division and plan_batch(division, config, estimate_addresses(memory))
        if plan:
            cost = simulate_fully(plan.sequence, model)
            found.append((TilingTrial(tiling.label, cost), tiling))
    if not found:
        rows, _ = divide_rows(chain, _ONE_STRIP)
        names = f"%{chain.layers[0].name} to %{chain.layers[-1].name}"
        raise fail(
            "COMP002",
            f"the layers {names} with one complete image do not fit a scratchpad",
            place=place,
            found=f"{count_needed_bytes(chain, first, rows)} bytes for tensors and constants",
            expected=f"at most {config.scratchpad_bytes} bytes",
            hint="Compile the network without --batch-cores.",
        )
    found.sort(key=lambda pair: pair[0].estimate.cycles)
    return ChosenChain(chain, found[0][1], tuple(trial for trial, _ in found))


def plan_batch(
    division: ChainDivision, config: DeviceConfig, place: PlaceGroup
) -> ChainPlan | None:
    """Plan complete images on each core; return None if constants do not fit the scratchpads."""
    plan = plan_chain(division, config, place)
    if plan is None:
        return None
    images, cores = division.tiling.images, config.cores_count
    return attrs.evolve(plan, sequence=_repeat(plan.sequence, division.chain, images, cores))


def _repeat(
    sequence: InstructionSequence, chain: Chain, images: int, cores: int
) -> InstructionSequence:
    """Repeat the instructions of the first core on all cores, each with its own images."""
    items, counts = np.tile(sequence.items, (cores, 1)), sequence.first[1]
    core = np.repeat(np.arange(cores), sequence.items.shape[0])
    is_started = items[:, KIND] < WAIT
    items[is_started, ARGUMENT] += core[is_started] * counts[items[is_started, KIND]]
    units = []
    for unit, one in enumerate(sequence.units):
        which, words = np.tile(one.which, cores), np.tile(one.words, (cores, 1))
        first_image = np.repeat(np.arange(cores) * images, one.which.size)
        for index, mnemonic in enumerate(one.mnemonics):
            rows, offsets = which == index, get_word_offsets(mnemonic)
            name = "dram" if unit in (Unit.LOAD, Unit.STORE) else "event_origin"
            step = _find_steps(chain, images, offsets, words[rows])
            if name in offsets:
                words[rows, offsets[name]] += first_image[rows] * step
        units.append(UnitInstructions(one.mnemonics, which, words))
    begins = np.arange(cores + 1)
    return InstructionSequence(
        items,
        begins * sequence.items.shape[0],
        tuple(units),
        begins[:, None] * counts,
        sequence.scratchpad,
    )


def _find_steps(chain: Chain, images: int, offsets: Mapping[str, int], words: Integers) -> Integers:
    """Return [instructions] the distance of two images: bytes of a transfer, else elements.

    A transfer of constants has distance 0.
    """
    if "dram" not in offsets:
        elements = np.array([chain.tensors[layer.output].elements for layer in chain.layers])
        return elements[words[:, offsets["layer"]] - chain.first]
    address, steps = words[:, offsets["dram"]], np.zeros(words.shape[0], np.int64)
    for name in (*chain.sources, *chain.stored):
        first, nbytes = chain.tensors[name].address, chain.tensors[name].nbytes
        steps[(address >= first) & (address < first + images * nbytes)] = nbytes
    return steps
