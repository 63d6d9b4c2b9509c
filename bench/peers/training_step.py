"""The PyTorch side of bench/training_step.cpp: one training step of the reported model, eager, on one device.

Prints a line a case, "name<TAB>microseconds": the median over several runs of many steps with one wait at the end.
"""

import argparse
import statistics
import time

import torch


def step_time(device: str, mixed: bool, fused: bool, steps: int = 200, runs: int = 7) -> float:
    torch.manual_seed(0)
    model = torch.nn.Linear(10, 10).to(device)
    data, target = torch.randn(10, 10, device=device), torch.randn(10, 10, device=device)
    optimizer = torch.optim.Adam(model.parameters(), fused=fused)
    scaler = torch.amp.GradScaler(device, enabled=mixed)
    loss_function = torch.nn.MSELoss()

    def step() -> None:
        with torch.autocast(device, dtype=torch.float16, enabled=mixed):
            loss = loss_function(model(data), target)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    for _ in range(30):
        step()
    wait()
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        wait()
        times.append((time.perf_counter() - begin) / steps)
    return statistics.median(times) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0: PyTorch's default")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    for mixed in (False, True):
        for fused in (False, True):
            name = f"training_step/{arguments.device}/{'f16' if mixed else 'f32'}/{'fused' if fused else 'unfused'}"
            print(f"{name}\t{step_time(arguments.device, mixed, fused):.2f}", flush=True)


if __name__ == "__main__":
    main()
