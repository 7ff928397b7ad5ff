"""Quantises the trained vectors to four bits and writes the table that is compiled in.

    python3 training/export.py [--table training/.data/table.npz] [--out crates/toolcrib-search/data/vectors.bin]

The format is told in `crates/toolcrib-search/src/table.rs`.
"""
import argparse
import pathlib
import struct

import numpy as np

HERE = pathlib.Path(__file__).parent
DATA = HERE / ".data"
# How far below the largest component the largest step may lie; the best is taken for each row.
CLIPS = (0.55, 0.65, 0.75, 0.85, 1.0)


def hash32(piece: str) -> int:
    """The upper half of the hash that the crate gives a term."""
    value = 0xCBF29CE484222325
    for byte in piece.encode():
        value = ((value ^ byte) * 0x100000001B3) & (2**64 - 1)
    return (((value ^ (value >> 32)) * 0x9E3779B97F4A7C15) & (2**64 - 1)) >> 32


def quantise(table):
    largest = np.abs(table).max(1, keepdims=True)
    best_steps = np.zeros(table.shape, np.int8)
    best_scale = np.zeros((len(table), 1), np.float16)
    best = np.full((len(table), 1), np.inf, np.float32)
    for clip in CLIPS:
        scale = (largest * clip / 7.5).astype(np.float16)
        steps = np.clip(np.round(table / np.maximum(scale.astype(np.float32), 1e-12)), -8, 7)
        error = ((steps * scale.astype(np.float32) - table) ** 2).sum(1, keepdims=True)
        better = error < best
        best_steps = np.where(better, steps, best_steps).astype(np.int8)
        best_scale = np.where(better, scale, best_scale)
        best = np.where(better, error, best)
    print(f"quantised with a relative error of {np.sqrt(best.sum() / (table ** 2).sum()):.3f}")
    return best_steps, best_scale.ravel()


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--table", type=pathlib.Path, default=DATA / "table.npz")
    ask.add_argument("--out", type=pathlib.Path, default=HERE.parent / "crates/toolcrib-search/data/vectors.bin")
    args = ask.parse_args()
    vocabulary = (DATA / "vocabulary.txt").read_text(encoding="utf-8").split("\n")[:-1]
    file = np.load(args.table)
    table = file["table"].astype(np.float32)
    table /= np.sqrt((table ** 2).sum(1).mean())
    hashes = [hash32(piece) for piece in vocabulary]
    # Of two pieces with one hash the earlier stays; it is the more frequent.
    first = {}
    for at, value in enumerate(hashes):
        first.setdefault(value, at)
    order = [first[value] for value in sorted(first)]
    steps, scales = quantise(table[order])
    # The lower bits of a byte hold the first half of the dimensions.
    half = table.shape[1] // 2
    codes = (steps + 8).astype(np.uint8)
    packed = codes[:, :half] | (codes[:, half:] << 4)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("wb") as out:
        out.write(b"TCV1" + struct.pack("<II", table.shape[1], len(order)))
        out.write(np.array([hashes[at] for at in order], "<u4").tobytes())
        out.write(scales.astype("<f2").tobytes())
        out.write(packed.tobytes())
    print(f"{len(order)} pieces, {args.out.stat().st_size} bytes; weights of the fields: {file['fields'].round(2).tolist()}")


main()
