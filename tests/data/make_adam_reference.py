"""Writes adam_reference.safetensors: what PyTorch's Adam, AdamW and SGD make of the same start and gradients.

For every case: the parameter after each of ten steps, in f64 on the CPU, so that only the formula shows and no rounding.
Run with PyTorch installed: python3 tests/data/make_adam_reference.py
"""

import json
import pathlib
import struct

import torch

STEPS, SIZE = 10, 6


def cases():
    for kind in ("Adam", "AdamW"):
        for amsgrad in (False, True):
            for maximize in (False, True):
                for weight_decay in (0.0, 0.1):
                    yield kind, dict(lr=0.03, betas=(0.8, 0.95), eps=1e-6, weight_decay=weight_decay, amsgrad=amsgrad,
                                     maximize=maximize)
    yield "SGD", dict(lr=0.1, momentum=0.9, dampening=0.2, weight_decay=0.1)
    yield "SGD", dict(lr=0.1, momentum=0.9, nesterov=True)


def name(kind: str, options: dict) -> str:
    parts = [kind]
    for key, value in options.items():
        for i, number in enumerate(value if isinstance(value, tuple) else (value,)):
            suffix = str(i + 1) if isinstance(value, tuple) else ""
            parts.append(f"{key}{suffix}={float(number)}")
    return "|".join(parts)


def main() -> None:
    torch.manual_seed(1)
    start = torch.randn(SIZE, dtype=torch.float64)
    gradients = torch.randn(STEPS, SIZE, dtype=torch.float64) * torch.logspace(-3, 2, SIZE, dtype=torch.float64)
    tensors = {"start": start, "gradients": gradients}
    for kind, options in cases():
        parameter = start.clone().requires_grad_()
        optimizer = getattr(torch.optim, kind)([parameter], **options)
        path = []
        for gradient in gradients:
            parameter.grad = gradient.clone()
            optimizer.step()
            path.append(parameter.detach().clone())
        tensors[name(kind, options)] = torch.stack(path)
    header, data = {"__metadata__": {"torch": torch.__version__}}, b""
    for key, value in tensors.items():
        raw = value.contiguous().numpy().tobytes()
        header[key] = {"dtype": "F64", "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = pathlib.Path(__file__).with_name("adam_reference.safetensors")
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    print(f"{path}: {len(tensors)} tensors")


if __name__ == "__main__":
    main()
