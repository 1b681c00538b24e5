"""Where a value can be cut, by number: the rows of every account of saturation."""

BIAS, ACCUMULATOR, RESCALE, RESULT, ACTIVATION = range(5)
"""ACTIVATION is clipping that the network asks for; the others are saturation."""

STAGE_NAMES = ("bias", "accumulator", "rescale", "result", "activation")

LOW, HIGH = range(2)
"""Sides."""

SIDE_NAMES = ("low", "high")
