"""Two processes that look at one name from two nodes.

    rounds.py replace DIR COUNT HOW    makes DIR/f COUNT times: by renaming over it ("rename") or by
                                       overwriting it ("truncate"); each version is told by its bytes
    rounds.py begin DIR                makes the first version
    rounds.py look DIR                 opens, reads, maps and stats DIR/f until it shows the last version;
                                       fails if it is ever missing, mixed or older than before
    rounds.py present PATH STOP        opens and reads PATH until the file STOP is there; fails if it is missing
    rounds.py uniform PATH STOP        the same; fails if its bytes are not all the same, or there are none
    rounds.py pipe HERE THERE COUNT    writes HERE/f and reads THERE/f in turns: the new bytes, always,
                                       of the same size as the old ones
    rounds.py storm DIR SEED COUNT     renames, removes, creates, links and lists in DIR, as another does
"""
import errno
import mmap
import os
import random
import sys
import time
import typing

LAST = 1 << 30
STOOD_STILL = 2  # seconds


def version(number: int) -> bytes:
    """Bytes that tell their version at both ends and in between, of a size that differs with it."""
    return b"%010d" % number * (7_000 + number % 13 * 100)


def number_of(data: bytes) -> int:
    number = int(data[:10])
    want = version(number) if number != LAST else b"%010d" % LAST * 100
    assert data == want, f"{len(data)} bytes that begin like version {number} are not it"
    return number


def begin(root: str) -> None:
    with open(f"{root}/f", "wb") as f:
        f.write(version(0))


def replace(root: str, count: str, how: str) -> None:
    for i in [*range(1, int(count)), LAST]:
        data = version(i) if i != LAST else b"%010d" % LAST * 100
        path = f"{root}/f" if how == "truncate" else f"{root}/next"
        with open(path, "wb") as f:
            f.write(data)
        if how == "rename":
            os.rename(path, f"{root}/f")


def moving(call: typing.Callable, *args):
    """Does something with the path of a file that is published again and again. A thread that stood
    still for so long in the middle may be told that what it found is old: then it is done again."""
    while True:
        began = time.monotonic()
        try:
            return call(*args)
        except OSError as e:
            if e.errno != errno.ESTALE or time.monotonic() - began <= STOOD_STILL:
                raise


def look(root: str) -> None:
    path, newest, seen = f"{root}/f", 0, set()
    while newest != LAST:
        size = moving(os.stat, path).st_size
        assert size in {len(version(i)) for i in range(13)} | {1000}, f"stat says {size} bytes"
        with moving(open, path, "rb") as f:
            data = f.read()
            with mmap.mmap(f.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as m:
                assert m[:] == data, "the mapping differs from what was read"
        number = number_of(data)
        assert number >= newest, f"version {number} after {newest}"
        newest = number
        seen.add(number)
    print(len(seen), "versions seen")


def present(path: str, stop: str, uniform: bool = False) -> None:
    while not os.path.exists(stop):
        with moving(open, path, "rb") as f:
            data = f.read()
        assert not uniform or len(set(data)) == 1, f"{len(data)} bytes are of {set(data)}"


def uniform(path: str, stop: str) -> None:
    present(path, stop, True)


def pipe(here: str, there: str, count: str) -> None:
    for i in range(int(count)):
        with open(f"{here}/f", "wb") as f:
            f.write(b"%08d" % i * 100)
        with open(f"{there}/f", "rb") as f:
            got = f.read()
        assert got == b"%08d" % i * 100, f"round {i}: {got[:8]!r}, {len(got)} bytes"


def storm(root: str, seed: str, count: str) -> None:
    rng, done = random.Random(int(seed)), {}
    names = [f"{root}/n{i}" for i in range(8)]

    def create(a: str, _: str) -> None:
        with open(a, "wb") as f:
            f.write(rng.randbytes(100))

    def read(a: str, _: str) -> None:
        with open(a, "rb") as f:
            f.read()

    kinds = [create, create, lambda a, b: os.rename(a, b), lambda a, b: os.unlink(a), lambda a, b: os.symlink("n0", a),
             lambda a, b: os.link(a, b), lambda a, b: os.listdir(root), lambda a, b: os.stat(a), read]
    for _ in range(int(count)):
        kind = rng.randrange(len(kinds))
        try:
            kinds[kind](*rng.sample(names, 2))
            done[kind] = done.get(kind, 0) + 1
        except OSError as e:  # the other one was faster, or there are no hard links
            assert e.errno in (2, 17, 40, 95, 116), e
    assert len(done) >= 7, done  # all but link


if __name__ == "__main__":
    {"begin": begin, "replace": replace, "look": look, "present": present, "uniform": uniform, "pipe": pipe, "storm": storm}[sys.argv[1]](*sys.argv[2:])
