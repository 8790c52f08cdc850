"""Readers that map files, as the frameworks do.

    reader.py mmap PATH forward|backward|random    digest of the whole mapping
    reader.py tensors PATH SEED                    every tensor, in random order, by safe_open
    reader.py make PATH MIB SEED                   a safetensors file
"""
import hashlib
import mmap
import random
import sys

PAGE = 4096


def walk(path: str, order: str) -> None:
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as m:
        offsets = list(range(0, len(m), PAGE))
        if order == "backward":
            offsets.reverse()
        elif order == "random":
            random.Random(7).shuffle(offsets)
        for offset in offsets:
            m[offset]
        print(hashlib.sha256(m).hexdigest())


def tensors(path: str, seed: str) -> None:
    from safetensors import safe_open

    digest = hashlib.sha256()
    with safe_open(path, framework="np") as f:
        names = sorted(f.keys())
        random.Random(int(seed)).shuffle(names)
        parts = {name: hashlib.sha256(f.get_tensor(name).tobytes()).digest() for name in names}
    for name in sorted(parts):
        digest.update(parts[name])
    print(digest.hexdigest())


def make(path: str, mib: str, seed: str) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    rng = np.random.default_rng(int(seed))
    count = int(mib) * 4
    save_file({f"layer.{i}.weight": rng.integers(0, 1 << 16, (128, 1024), np.uint16).view(np.float16) for i in range(count)}, path)


if __name__ == "__main__":
    {"mmap": walk, "tensors": tensors, "make": make}[sys.argv[1]](*sys.argv[2:])
