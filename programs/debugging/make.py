"""Five programs that are wrong, each in its own way, made of the digits network.

    python programs/debugging/make.py FOLDER

writes into FOLDER the right program (right.bin, its layers in right.npz) and five wrong ones.
docs/debugging.md finds what is wrong with each.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import nmpsim
from nmpsim.bundle import parse_bundle
from nmpsim.bundle.patch import ByteChange, apply_patch
from nmpsim.debugger import Debugger
from nmpsim.debugger.changes import ProgramEditor
from nmpsim.debugger.edits import build_patch
from nmpsim.isa.codec import encode
from nmpsim.lir.layers import find_layer

DIGITS = Path(__file__).parents[1] / "digits"
TEXT = (DIGITS / "digits.lir.txt").read_text()
SEVEN = np.load(DIGITS / "images" / "7.npy")
PAD_RIGHT = "%conv2_bias { Kernels: [3, 3], Strides: [1, 1], Pads: [1, 1, 1, 1]"
PAD_WRONG = "%conv2_bias { Kernels: [3, 3], Strides: [1, 1], Pads: [0, 0, 2, 2]"


def compiled(folder: Path, text: str, arrays: dict[str, Any], tensors: dict[str, Any]) -> bytes:
    """The bundle of a program that is written down in ``folder`` first."""
    lir, npz = folder / "net.lir.txt", folder / "net.npz"
    lir.write_text(text)
    np.savez(npz, **arrays)
    (folder / "net.tensors.json").write_text(json.dumps(tensors))
    return nmpsim.compile(lir, npz, tiling="layer").image  # the program that is debugged


def right(folder: Path, arrays: dict[str, Any], tensors: dict[str, Any]) -> bytes:
    """Nothing is wrong."""
    return compiled(folder, TEXT, arrays, tensors)


def corrupted_weight(folder: Path, arrays: dict[str, Any], tensors: dict[str, Any]) -> bytes:
    """One bit of one weight of the second convolution has flipped."""
    weights = arrays["conv2_weights__1"].copy()
    weights[21, 1, 1, 6] ^= 0x40
    return compiled(folder, TEXT, {**arrays, "conv2_weights__1": weights}, tensors)


def wrong_shift(folder: Path, arrays: dict[str, Any], tensors: dict[str, Any]) -> bytes:
    """The compiler has shifted the sums of the second convolution by one bit too few."""
    image = compiled(folder, TEXT, arrays, tensors)
    debugger = Debugger(parse_bundle(image), {"data": SEVEN})
    changes, layer = ProgramEditor(debugger), find_layer(debugger.layers, "conv2")
    shift = next(
        one.words["out_post"] for one in changes.trace_layer(layer) if "out_post" in one.words
    )
    changes.set_word(layer, "out_post", shift - 1)
    return apply_patch(image, build_patch(debugger.bundle, debugger.edits), "wrong_shift.bin")


def retyped_bias(folder: Path, arrays: dict[str, Any], tensors: dict[str, Any]) -> bytes:
    """The second bias got the scale of the layer's result; its integers stayed as they were."""
    old, new = tensors["const/conv2_bias"], tensors["act/0010:conv2__2:conv2__2_res"]
    bias = {**old, "scale": new["scale"], "scale_hex": new["scale_hex"]}
    text = TEXT.replace("i32[S:0.000063819 O:0]", f"i32[S:{new['scale']:.9f} O:0]")
    return compiled(folder, text, arrays, {**tensors, "const/conv2_bias": bias})


def missing_wait(folder: Path, arrays: dict[str, Any], tensors: dict[str, Any]) -> bytes:
    """A core does not wait for its operands of the second convolution."""
    image = compiled(folder, TEXT, arrays, tensors)
    debugger = Debugger(parse_bundle(image), {"data": SEVEN})
    debugger.run_to_end()
    trace = ProgramEditor(debugger).trace_layer(find_layer(debugger.layers, "conv2"))
    wait = next(
        one for one in trace
        if one.core == 1 and one.instruction.mnemonic == "nmp.wait" and one.word >> 15 & 31 == 0
    )  # fmt: skip
    nothing = encode("addi", {"rd": 0, "rs1": 0, "imm": 0})
    change = ByteChange(wait.pc, wait.word.to_bytes(4, "little"), nothing.to_bytes(4, "little"), "")
    return apply_patch(image, (change,), "missing_wait.bin")


def wrong_pad(folder: Path, arrays: dict[str, Any], tensors: dict[str, Any]) -> bytes:
    """All padding of the second convolution lies at the right and at the bottom."""
    return compiled(folder, TEXT.replace(PAD_RIGHT, PAD_WRONG), arrays, tensors)


PROGRAMS: dict[str, Callable[[Path, dict[str, Any], dict[str, Any]], bytes]] = {
    one.__name__: one
    for one in (right, corrupted_weight, wrong_shift, retyped_bias, missing_wait, wrong_pad)
}


def make(folder: Path) -> None:
    """Write all programs and the right one's layers."""
    with np.load(DIGITS / "digits.npz") as file:
        arrays = dict(file)
    tensors = json.loads((DIGITS / "digits.tensors.json").read_text())
    for name, program in PROGRAMS.items():
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.bin").write_bytes(program(place, arrays, tensors))
    bundle = nmpsim.load(folder / "right.bin")
    report = nmpsim.Device(nmpsim.get_device(bundle)).run(bundle, {"data": SEVEN}, save_layers=True)
    np.savez(folder / "right.npz", **report.layer_outputs)
    np.savez(folder / "weights.npz", **arrays)
    np.save(folder / "seven.npy", SEVEN)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python programs/debugging/make.py FOLDER")
    make(Path(sys.argv[1]))
    print(f"wrote {', '.join(f'{name}.bin' for name in PROGRAMS)} to {sys.argv[1]}")
