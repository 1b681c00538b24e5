"""Fixtures with a small bundle that has every kind of content."""

import attrs
import numpy as np
import pytest

from nmpsim.bundle import HostOperand, Layer, Metadata, ProgramStep, Tensor
from nmpsim.bundle.write import BundleBuilder
from nmpsim.isa.codec import BY_MNEMONIC, encode, encode_descriptor
from nmpsim.isa.expressions import compute_high_part, compute_low_part
from nmpsim.isa.table import DESCRIPTORS


def tensor_instruction(mnemonic: str, descriptor: int) -> list[int]:
    """Encode a tensor instruction after loading the descriptor's address into t0."""
    return [
        encode("lui", {"rd": 5, "imm": compute_high_part(descriptor) << 12}),
        encode("addi", {"rd": 5, "rs1": 5, "imm": compute_low_part(descriptor)}),
        encode(mnemonic, {"rs1": 5}),
    ]


def descriptor(kind: str, **values: int | str) -> bytes:
    return encode_descriptor(kind, {w.name: 0 for w in DESCRIPTORS[kind]} | values)


def example_metadata(builder: BundleBuilder) -> tuple[Metadata, dict[str, int]]:
    """Fill a builder; return the metadata and the addresses of its contents."""
    at = {}
    at["weights"] = builder.add_constant("conv/weights", np.arange(70, dtype=np.int8))
    at["bias"] = builder.add_constant("bias ä #1", np.arange(3, dtype=np.int32))
    at["input"] = builder.reserve("data", 48)
    at["scores"] = builder.reserve("scores", 40)
    builder.define_symbol("scores_view", at["scores"], 40)
    at["output"] = builder.reserve("prob", 40)
    load = builder.add_descriptor(
        descriptor("load", dram=at["weights"], spm=0x2000_0000, run_bytes=70, count_x=1, count_y=1)
    )
    conv = builder.add_descriptor(
        descriptor("conv", layer=0, output=0x2000_0100, part="last", out_offset=-3), "conv_tile"
    )
    builder.add_descriptor(bytes(range(8)))
    store = builder.add_descriptor(descriptor("store", layer=0, dram=at["scores"]))
    words = tensor_instruction("nmp.load", load)
    words += [encode("nmp.wait", {"unit": 0, "outstanding": 0})]
    words += tensor_instruction("nmp.conv", conv) + tensor_instruction("nmp.store", store)
    words += [encode("bne", {"rs1": 5, "rs2": 0, "offset": -12}), BY_MNEMONIC["nmp.halt"].match]
    words += [0x0FF0000F, 0xDEADBEE0]
    at["entry"] = builder.add_code(words, "start")
    builder.add_code([BY_MNEMONIC["nmp.halt"].match], "rest")
    data = Tensor("data", "i8", (1, 4, 4, 3), at["input"], 1 / 3, -5)
    scores = Tensor("scores", "float", (1, 10), at["scores"])
    prob = Tensor("prob", "float", (1, 10), at["output"])
    conv_layer = Layer(
        0, "conv", 3, 12, "convolution", "device", scores, "scores_res", fused=("conv", "relu"),
        barrier=4, macs=1000,
    )  # fmt: skip
    softmax = Layer(1, "softmax", 5, 14, "softmax", "host", prob, "prob", reason="float # here")
    operands = (HostOperand("in", scores), HostOperand("out", prob))
    attributes = {"Beta": 0.1, "Kernels": (3, 3), "Layout": "NHWC"}
    steps = (
        ProgramStep("device", (0,), at["entry"]),
        ProgramStep("host", (1,), None, "softmax", operands, attributes),
    )
    device = {"cores": {"count": 2}, "clock_mhz": 800.0}
    metadata = Metadata(
        "net", "net.lir", "glow-int", device, (data,), (prob,), (conv_layer, softmax), steps
    )
    return metadata, at


@pytest.fixture
def metadata() -> Metadata:
    return example_metadata(BundleBuilder())[0]


@pytest.fixture(scope="session")
def bundle_bytes() -> bytes:
    builder = BundleBuilder()
    return bytes(builder.build_file(example_metadata(builder)[0]))


@pytest.fixture
def build_with():
    """Return a function that builds the example bundle with changed metadata."""

    def build(**changes) -> bytes:
        builder = BundleBuilder()
        return bytes(builder.build_file(attrs.evolve(example_metadata(builder)[0], **changes)))

    return build
