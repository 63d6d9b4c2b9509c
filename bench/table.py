"""Joins a Google Benchmark JSON file with a peer's times ("name<TAB>microseconds" lines) into one table and one JSON file."""

import argparse
import json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ours", required=True)
    parser.add_argument("--peers", required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    with open(arguments.ours) as file:
        ours = {b["name"].removesuffix("/real_time"): 1e6 / b["items_per_second"] for b in json.load(file)["benchmarks"]}
    with open(arguments.peers) as file:
        peers = {name: float(time) for name, time in (line.rstrip().split("\t") for line in file)}
    rows = []
    print(f"{'case':40} {'ours, µs':>12} {'PyTorch, µs':>12} {'ratio':>8}")
    for name, time in ours.items():
        peer = peers.get(name)
        rows.append({"name": name, "ours_us": time, "pytorch_us": peer, "ratio": peer / time if peer else None})
        print(f"{name:40} {time:12.2f} {peer if peer else float('nan'):12.2f} {peer / time if peer else float('nan'):8.2f}")
    with open(arguments.json, "w") as file:
        json.dump({"commit": arguments.commit, "gpu": arguments.gpu, "rows": rows}, file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()
