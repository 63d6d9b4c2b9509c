"""The reported experiment in PyTorch: the losses that examples/reported_experiment.cpp is compared with.

Prints a line a row: precision, fused or unfused, clip norm, and the losses of ten steps to four decimals.
"""

import torch

SEED = 2809


def run(precision: str, fused: bool, clip: float | None, double_unscale: bool = False, steps: int = 10) -> list[float]:
    torch.manual_seed(SEED)
    target = torch.randn(10, 10, device="cuda")
    data = torch.randn(10, 10, device="cuda")
    torch.manual_seed(SEED)
    model = torch.nn.Linear(10, 10).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, fused=fused)
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "f16")
    dtype = torch.bfloat16 if precision == "bf16" else torch.float16
    losses = []
    for _ in range(steps):
        with torch.autocast("cuda", dtype=dtype, enabled=precision != "f32"):
            loss = torch.nn.functional.mse_loss(model(data), target)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if clip is not None:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        if double_unscale:
            for parameter in model.parameters():
                parameter.grad /= scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


def main() -> None:
    for precision in ("f32", "f16", "bf16"):
        for clip in (None, 0.5):
            for fused in (False, True):
                losses = " ".join(f"{loss:.4f}" for loss in run(precision, fused, clip))
                print(f"{precision}\t{'fused' if fused else 'unfused'}\tclip {clip}\t{losses}")
    losses = " ".join(f"{loss:.4f}" for loss in run("f16", True, None, double_unscale=True))
    print(f"f16\tfused\tunscaled twice\t{losses}")


if __name__ == "__main__":
    main()
