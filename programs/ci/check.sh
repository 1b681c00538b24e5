#!/bin/sh
# Compiles the network and checks it; options are those of `nmpsim check`.
set -e
nmpsim compile digits.lir.txt --weights digits.npz -o digits.bin
nmpsim check suite.toml "$@"
