"""Campaign of damaged recordings and claims: layer kernels against tiles.

    PYTHONPATH=tests python tests/compiler/whole_campaign.py [--seed SEED] [--count COUNT]

Changes words of descriptors, or what a layer claims, and compares memory and counters of the plan
with those of the tiles. Stops with AssertionError at the first difference. The tests of whole
layers do the same a few times.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np
import test_whole_groups as groups
import test_whole_layers as layers
import test_whole_moves as moves
import test_whole_products as products
import test_whole_windows as windows
from whole_recordings import (
    TIGHT,
    Recording,
    assert_right_or_refused,
    change_all_words,
    change_word,
    damage_claims,
    list_in_order,
    record,
)

from nmpsim.bundle.metadata import Layer

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
    rng, flat = np.random.default_rng(seed), list_in_order(recorded)
    one = flat[int(rng.integers(len(flat)))]
    word, by = int(rng.integers(1, len(one.words))), int(rng.choice(STEPS))
    claims: Sequence[Layer] = recorded[0].metadata.layers
    if rng.integers(3) == 0:
        claims, by = damage_claims(claims, rng), by * int(rng.integers(2))
    same = [other for other in flat if other.number == one.number]
    once = change_word(one.number, word, by, int(rng.integers(len(same))))
    everywhere = change_all_words(one.number, word, by)
    return assert_right_or_refused(recorded, everywhere if rng.integers(2) else once, claims, seed)


def main() -> None:
    """Run the campaign, reporting every thousand recordings."""
    parser = argparse.ArgumentParser(description="Compare layer kernels with tiles.")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, default=1000, help="number of damaged recordings")
    given = parser.parse_args()
    known, whole = list(recordings()), 0
    for number, seed in zip(range(1, given.count + 1), count(given.seed), strict=False):
        try:
            whole += damage(known[seed % len(known)], seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
        if number % 1000 == 0 or number == given.count:
            print(f"{number} recordings, {whole} with layer kernels, all equal", flush=True)


if __name__ == "__main__":
    main()
