"""Loads a checkpoint as the ranks of one machine do, and prints the seconds.

    load.py DIR PROCESSES SEED

Every process loads its share of the tensors by the safetensors library, by plain
path, in an order of its own; all begin at one moment, with the library imported
and no file open.
"""
from __future__ import annotations

import multiprocessing
import pathlib
import random
import sys
import time

import numpy  # noqa: F401  the library wants it at the first tensor; all begin with it
from safetensors import safe_open


def names(root: pathlib.Path) -> list[tuple[pathlib.Path, str]]:
    all = []
    for shard in sorted(root.glob("*.safetensors")):
        with safe_open(shard, framework="np") as f:
            all += [(shard, name) for name in sorted(f.keys())]
    return all


def load(root: pathlib.Path, rank: int, of: int, seed: int, ready, results) -> None:
    ready.wait()
    began = time.monotonic()
    mine = names(root)[rank::of]
    random.Random(seed * of + rank).shuffle(mine)
    size, files = 0, {}
    for shard, name in mine:
        if shard not in files:
            files[shard] = safe_open(shard, framework="np").__enter__()
        tensor = files[shard].get_tensor(name)
        size += tensor.nbytes
    results.put((began, time.monotonic(), size))


def main(root: str, processes: str, seed: str) -> None:
    of = int(processes)
    ready, results = multiprocessing.Barrier(of), multiprocessing.Queue()
    ranks = [multiprocessing.Process(target=load, args=(pathlib.Path(root), rank, of, int(seed), ready, results)) for rank in range(of)]
    for p in ranks:
        p.start()
    took = [results.get(timeout=600) for _ in ranks]
    for p in ranks:
        p.join()
    want = sum(p.stat().st_size for p in pathlib.Path(root).glob("*.safetensors"))
    if not 0.99 * want < sum(size for _, _, size in took) <= want:
        sys.exit(f"loaded {sum(size for _, _, size in took)} of {want} bytes")
    print(max(end for _, end, _ in took) - min(begin for begin, _, _ in took))


if __name__ == "__main__":
    main(*sys.argv[1:])
