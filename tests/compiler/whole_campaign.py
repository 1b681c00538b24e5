"""Campaign of damaged recordings and claims: layer kernels against tiles.

    PYTHONPATH=tests python tests/compiler/whole_campaign.py [--seed SEED] [--count COUNT]

Changes words of descriptors, or what a layer claims, and compares memory and counters of the plan
with those of the tiles. Stops with AssertionError at the first difference. The tests of whole
layers do the same a few times.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from itertools import count

import numpy as np
import pytest
import test_whole_groups as groups
import test_whole_layers as layers
import test_whole_moves as moves
import test_whole_products as products
import test_whole_windows as windows
import whole_recordings
from whole_recordings import (
    TIGHT,
    Recording,
    assert_right_or_refused,
    change_all_words,
    change_word,
    damage_claims,
    record,
)

from nmpsim.bundle.metadata import Layer
from nmpsim.core.layer_kernels import planning, proof
from nmpsim.core.layer_kernels.byte_origins import DramOrigins, UnprovedError
from nmpsim.core.layer_kernels.proof import Parts
from nmpsim.core.layer_kernels.tasks import HostMemory, Task
from nmpsim.kernels.jit import compile_with_numba
from nmpsim.memory.checks import find_invalid_word
from nmpsim.memory.footprint import compute_footprint
from nmpsim.memory.pure import register_pure_functions

STEPS = (-4096, -512, -64, -37, -16, -8, -4, -2, -1, 1, 2, 3, 4, 5, 8, 14, 16, 37, 64, 512, 4096)


def recordings() -> Iterator[Recording]:
    """Yield recordings of networks with every operation that can be whole."""
    yield record(layers.network(), layers.DEEP)
    yield record(windows.network(), TIGHT)
    yield record(groups.network(), TIGHT)
    for elem in ("i8", "i16"):
        yield record(products.network(elem), products.TIGHT)
        yield record(moves.network(elem), TIGHT)


def damage(recorded: Recording, seed: int) -> bool:
    """Change a recording or its claims; return whether some layer is still whole."""
    rng, flat = np.random.default_rng(seed), recorded.in_order
    one = flat[int(rng.integers(len(flat)))]
    word, by = int(rng.integers(1, len(one.words))), int(rng.choice(STEPS))
    claims: Sequence[Layer] = recorded.bundle.metadata.layers
    if rng.integers(3) == 0:
        claims, by = damage_claims(claims, rng), by * int(rng.integers(2))
    same = [other for other in flat if other.number == one.number]
    once = change_word(one.number, word, by, int(rng.integers(len(same))))
    everywhere = change_all_words(one.number, word, by)
    return assert_right_or_refused(recorded, everywhere if rng.integers(2) else once, claims, seed)


def speed_up(patched: pytest.MonkeyPatch, known: Iterable[Recording]) -> None:
    """Reuse proofs of layers without damage, and compile checks and footprints."""
    executed = {id(one) for recorded in known for one in recorded.in_order}
    proofs: dict[tuple[int, ...], Mapping[int, Sequence[Task]] | None] = {}
    layers = {id(layer) for recorded in known for layer in recorded.bundle.metadata.layers}
    hosts: list[HostMemory] = []  # memory of the reused tasks
    prove_group = proof._prove_group

    def reuse_proof(
        dram: DramOrigins,
        claimed: Mapping[int, Layer],
        epochs: Sequence[Parts],
        numbers: Set[int],
        host: HostMemory,
    ) -> Mapping[int, Sequence[Task]]:
        known = tuple(map(id, claimed.values()))
        used = tuple(id(one) for parts in epochs for part in parts.values() for one in part)
        key = known + used
        if not executed.issuperset(used) or not layers.issuperset(known):
            return prove_group(dram, claimed, epochs, numbers, host)
        if key not in proofs:
            hosts.append(host)
            proofs[key] = None
            with suppress(UnprovedError):
                proofs[key] = prove_group(dram, claimed, epochs, numbers, host)
        tasks = proofs[key]
        if tasks is None:
            raise UnprovedError
        return tasks

    patched.setattr(proof, "_prove_group", reuse_proof)
    register_pure_functions()
    patched.setattr(whole_recordings, "check", compile_with_numba(find_invalid_word))
    for module in (proof, planning):
        patched.setattr(module, "compute_footprint", compile_with_numba(compute_footprint))


def main() -> None:
    """Run the campaign, reporting every thousand recordings."""
    parser = argparse.ArgumentParser(description="Compare layer kernels with tiles.")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, default=1000, help="number of damaged recordings")
    given = parser.parse_args()
    known, whole = list(recordings()), 0
    with pytest.MonkeyPatch.context() as patched:
        speed_up(patched, known)
        for number, seed in zip(range(1, given.count + 1), count(given.seed), strict=False):
            try:
                whole += damage(known[seed % len(known)], seed)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}") from error
            if number % 1000 == 0 or number == given.count:
                print(f"{number} recordings, {whole} with layer kernels, all equal", flush=True)


if __name__ == "__main__":
    main()
