"""The PyTorch side of bench/optimizer_phase.cpp: the same sets of parameters, timed the same way.

Prints a line a case, "name<TAB>microseconds", a median over several times: of one phase between two events with an idle
GPU before, and of several phases "queued" between two events. `adam` is
Adam(fused=True) alone; `scaler` is scaler.step and update, and the f16 copies of all weights that autocast makes anew in
every step (as one foreach copy, their best case); `clip` has unscale_ and clip_grad_norm_ before. `adam, captured` is the
fused step in a CUDA graph.
"""

import argparse
import statistics
import time

import torch

WIDTH = 768
GPT2 = [50257 * WIDTH, 1024 * WIDTH]
GPT2 += 12 * [WIDTH, WIDTH, 3 * WIDTH**2, 3 * WIDTH, WIDTH**2, WIDTH, WIDTH, WIDTH, 4 * WIDTH**2, 4 * WIDTH, 4 * WIDTH**2, WIDTH]
GPT2 += [WIDTH, WIDTH]
SETS = {  # sizes, phases between two events
    "10x10+10": ([100, 10], 100),
    "1000x1000": (1000 * [1000], 3),
    "1000x65536": (1000 * [65536], 3),
    "16_Mi": ([16 << 20], 20),
    "gpt2": (GPT2, 5),
    "1_Gi": ([1 << 30], 2),
}


def time_cuda(phase, phases: int, runs: int) -> float:
    for _ in range(3):
        phase()
    times = []
    for _ in range(runs):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        for _ in range(phases):
            phase()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / phases * 1e3)
    return statistics.median(times)


def time_cpu(phase, runs: int) -> float:
    for _ in range(3):
        phase()
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        phase()
        times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times)


def make(sizes, device: str, **options):
    parameters = [torch.nn.Parameter(torch.full((n,), 0.5, device=device)) for n in sizes]
    for p in parameters:
        p.grad = torch.full_like(p, 0.125)
    return parameters, torch.optim.Adam(parameters, lr=1e-3, fused=True, **options)


def phases_of(parameters, optimizer, device: str):
    scaler = torch.amp.GradScaler(device)
    scaler.scale(torch.zeros((), device=device))
    with torch.no_grad():
        copies = [p.to(torch.float16) for p in parameters]

    def finish() -> None:
        scaler.step(optimizer)
        scaler.update()
        with torch.no_grad():
            torch._foreach_copy_(copies, parameters)

    def clip() -> None:
        # unscale_ writes the gradients; they shrink towards zero over the repetitions, which costs the same time.
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        finish()

    return {"adam": optimizer.step, "scaler": finish, "clip": clip}


def captured_step(sizes) -> float:
    parameters, optimizer = make(sizes, "cuda", capturable=True)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            optimizer.step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        optimizer.step()
    return time_cuda(graph.replay, 20, 9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0: PyTorch's default")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if arguments.device == "cpu":
        parameters, optimizer = make([10 << 20], "cpu")
        for name, phase in phases_of(parameters, optimizer, "cpu").items():
            print(f"optimizer_phase/cpu/10_Mi/{name}\t{time_cpu(phase, 15):.2f}", flush=True)
        return
    for set_name, (sizes, phases) in SETS.items():
        parameters, optimizer = make(sizes, "cuda")
        for name, phase in phases_of(parameters, optimizer, "cuda").items():
            print(f"optimizer_phase/cuda/{set_name}/{name}\t{time_cuda(phase, 1, 21):.2f}", flush=True)
            print(f"optimizer_phase/cuda/{set_name}/{name}, queued\t{time_cuda(phase, phases, 9):.2f}", flush=True)
        del parameters, optimizer, phase
        torch.cuda.empty_cache()
        print(f"optimizer_phase/cuda/{set_name}/adam, captured\t{captured_step(sizes):.2f}", flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
