#!/usr/bin/env python3
"""Writes random_reference.safetensors: what PyTorch draws, for tests/kernels/random_reference_test.cpp.

    python3 make_random_reference.py [OUT]

Needs PyTorch and a GPU (the committed file: see its metadata). Without a GPU pass --cpu-only; the test then asks for a
whole file. Each tensor's name says how it was drawn, for example

    seed=42|device=cuda|fn=normal|dtype=f32|n=300000|a=0|b=1|call=1|slice=270304:270368

Seed 42; `torch.empty(n, dtype, device).normal_(a, b)`, the first such call after seeding; elements 270304 to 270367.
Of large tensors only slices are kept: the beginning, the end, and where the CUDA generator's threads start over.
"""

import argparse
import json
import pathlib
import struct

import torch

DTYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}
FORMATS = {"f32": "F32", "f64": "F64", "f16": "F16", "bf16": "BF16"}
SEEDS = [0, 42, 2809, 2**40 + 7]
WINDOW = 64


def cases(device):
    """Yields (seed, fn, dtype, n, a, b, calls)."""
    standard = [("uniform", 0, 1), ("normal", 0, 1)]
    scaled = [("uniform", -0.3, 0.7), ("normal", 2, 3)]
    for seed in SEEDS:
        for fn, a, b in standard + scaled:
            for n in (5, 7, 15, 16, 17, 100, 1000):
                yield seed, fn, "f32", n, a, b, 1
            yield seed, fn, "f32", 1, a, b, 3
            yield seed, fn, "f32", 33, a, b, 3
        for dtype in ("f64", "f16", "bf16"):
            for fn, a, b in standard + scaled:
                for n in (7, 100):
                    yield seed, fn, dtype, n, a, b, 2
    if device == "cuda":
        for fn, a, b in standard:
            for dtype in DTYPES:
                yield 42, fn, dtype, 300_000, a, b, 2
                yield 2809, fn, dtype, 1_200_000, a, b, 2
        yield 0, "normal", "f32", 5_000_000, 0, 1, 2
        # Too many bytes for 32 bits: PyTorch draws such a tensor in two halves.
        yield 0, "uniform", "f32", 2**29 + 1000, 0, 1, 2
    else:
        for fn, a, b in standard + scaled:
            yield 2809, fn, "f32", 100_003, a, b, 2


def slices(n, threads):
    """Yields the parts of n elements to keep."""
    if n <= 2 * WINDOW:
        yield 0, n
        return
    yield 0, WINDOW
    for middle in (threads, 2 * threads, 4 * threads, n // 2):
        if WINDOW < middle < n - 2 * WINDOW:
            yield middle - WINDOW // 2, middle + WINDOW // 2
    yield n - WINDOW, n


def draw_all(device, threads):
    tensors = {}
    for seed, fn, dtype, n, a, b, calls in cases(device):
        torch.manual_seed(seed)
        for call in range(1, calls + 1):
            drawn = torch.empty(n, dtype=DTYPES[dtype], device=device)
            drawn = drawn.uniform_(a, b) if fn == "uniform" else drawn.normal_(a, b)
            for begin, end in slices(n, threads):
                key = f"seed={seed}|device={device}|fn={fn}|dtype={dtype}|n={n}|a={a}|b={b}|call={call}"
                tensors[f"{key}|slice={begin}:{end}"] = (dtype, drawn[begin:end].cpu().contiguous())
    return tensors


def write(path, tensors, metadata):
    """The safetensors format, by hand: it is four lines, and saves a dependency."""
    header, blobs, at = {"__metadata__": metadata}, [], 0
    # Wide elements first, so that every tensor lies aligned in the file.
    for key, (dtype, tensor) in sorted(tensors.items(), key=lambda item: -item[1][1].element_size()):
        blob = tensor.view(torch.uint8).numpy().tobytes()
        header[key] = {"dtype": FORMATS[dtype], "shape": list(tensor.shape), "data_offsets": [at, at + len(blob)]}
        at += len(blob)
        blobs.append(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = pathlib.Path(__file__).parent
    parser.add_argument("out", nargs="?", type=pathlib.Path, default=here / "random_reference.safetensors")
    parser.add_argument("--cpu-only", action="store_true", help="leave out what needs a GPU")
    options = parser.parse_args()

    metadata = {"torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability()}
    tensors = draw_all("cpu", threads=50_000)
    if not options.cpu_only:
        gpu = torch.cuda.get_device_properties(0)
        blocks = gpu.multi_processor_count * (gpu.max_threads_per_multi_processor // 256)
        metadata |= {"gpu": gpu.name, "max_blocks": str(blocks)}
        tensors |= draw_all("cuda", threads=256 * blocks)
    write(options.out, tensors, metadata)
    print(f"{options.out}: {len(tensors)} tensors, {options.out.stat().st_size} bytes, {metadata}")


if __name__ == "__main__":
    main()
