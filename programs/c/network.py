"""Write a small network, its constants and an input: ``network.py [FOLDER] [i8|i16]``.

The network is a depthwise convolution and an activation.
"""

import sys
from pathlib import Path

import numpy as np

BITS = {"i8": 8, "i16": 16}
LIR = """function main
declare {{
  %w = WeightVar {elem}[S:0.01 O:0][-1.28,1.27]<{channels} x 3 x 3 x 1> const
  %b = WeightVar i32[S:0.0005 O:0][-1.0,1.0]<{channels}> const
  %x = WeightVar {elem}[S:0.05 O:{zero}][-6.0,6.0]<1 x {size} x {size} x {channels}> mutable
  %y = WeightVar {elem}[S:{scale} O:-7][-6.0,6.0]<1 x {size} x {size} x {channels}> mutable
}}
code {{
  0 %depthwise_res = allocactivation {{ Ty: {elem}[S:{scale} O:-7][-6.0,6.0]\
<1 x {size} x {size} x {channels}>}}
  1 %depthwise = convolution @out %depthwise_res, @in %x, @in %w, @in %b \
{{ Kernels: [3, 3], Strides: [1, 1], Pads: [1, 1, 1, 1], Group: {channels}, Dilation: [1, 1], \
Layout: NHWC, FusedActivation: NONE, FusedActivationArgs: []}}
  2 %activation = relu @out %y, @in %depthwise_res
  3 %dealloc = deallocactivation @out %depthwise_res
}}
"""


def write_network(folder: Path, elem: str = "i8", channels: int = 40, size: int = 30) -> None:
    """Write ``net.lir.txt``, ``net.npz`` and ``x.npy`` for an element type to a folder."""
    random = np.random.default_rng(7)
    high = 1 << (BITS[elem] - 1)
    scale = 0.02 if elem == "i8" else 0.7
    text = LIR.format(elem=elem, channels=channels, size=size, zero=3, scale=scale)
    (folder / "net.lir.txt").write_text(text, encoding="utf-8")
    dtype = f"int{BITS[elem]}"
    weights = random.integers(-high, high, (channels, 3, 3, 1)).astype(dtype)
    biases = random.integers(-3000, 3000, channels).astype(np.int32)
    shape = (1, size, size, channels)
    np.savez(folder / "net.npz", w=weights, b=biases)
    np.save(folder / "x.npy", random.integers(-high, high, shape).astype(dtype))


if __name__ == "__main__":
    write_network(Path(sys.argv[1] if len(sys.argv) > 1 else "."), *sys.argv[2:3])
