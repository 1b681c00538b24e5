"""``nmpsim compile``: a network as LIR becomes a bundle."""

from __future__ import annotations

from pathlib import Path

import click

from nmpsim.cli.files import check_outputs
from nmpsim.cli.guard import say
from nmpsim.cli.options import FILE, Command, device_option, load_device, output_option


@click.command("compile", cls=Command, short_help="Compile a network to a bundle.")
@click.argument("lir", metavar="NET.lir", type=FILE)
@click.option("--weights", metavar="W.npz", type=FILE, help="Constants of the network.")
@click.option(
    "--tensors",
    metavar="T.json",
    type=FILE,
    help="Exact scales; without it, NET.tensors.json beside the LIR if there is one.",
)
@click.option(
    "--numerics",
    metavar="PROFILE",
    default="glow-int",
    show_default=True,
    help="Whose arithmetic to follow, to the bit.",
)
@device_option("the NMP (`nmpsim device`)")
@click.option("--no-fuse", is_flag=True, help="Keep every instruction a layer of its own.")
@output_option("NET.bin", "The bundle to write.", required=True)
def command(
    lir: Path,
    weights: Path | None,
    tensors: Path | None,
    numerics: str,
    device: Path | None,
    no_fuse: bool,
    output: Path,
) -> None:
    """Compile a network, Glow's LIR, for the NMP."""
    check_outputs([output], [lir, weights, tensors, device])
    config = load_device(device)
    from nmpsim import session

    compiled = session.compile(
        lir, weights, tensors, device=config, numerics=numerics, fuse=not no_fuse
    )
    for warning in compiled.warnings:
        say(f"warning: {warning}")
    session.save(compiled, output)
    say(_summary(compiled.image, output))


def _summary(image: bytes, output: Path) -> str:
    from nmpsim.bundle import bundle_from_bytes
    from nmpsim.views.text import plural

    metadata = bundle_from_bytes(image, str(output)).metadata
    host = sum(layer.placement == "host" for layer in metadata.layers)
    cores = metadata.device.get("cores_count")
    return (
        f"wrote {output}: {plural(len(metadata.layers) - host, 'layer')} on the device,"
        f" {host} on the host, {len(image):,} bytes"
        + (f", for {plural(cores, 'core')}" if isinstance(cores, int) else "")
    )
