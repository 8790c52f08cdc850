"""Writes files in the ways of programs that are not simple.

    writer.py NAME DIR

NAME is one of the functions below. Each makes files in DIR, which exists, and
prints a line "name digest" for each file that has to be there in the end. What
the writer itself sees is checked while it writes.
"""
import hashlib
import mmap
import os
import pathlib
import pickle
import random
import shutil
import subprocess
import sys
import zipfile

BLOCK = 64 << 10  # of the clusters these run on


def noise(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


def promise(path: pathlib.Path, data: bytes) -> None:
    """Says what path has to be, having looked at it here."""
    assert path.read_bytes() == data, f"{path} is not what was written"
    print(path.name, hashlib.sha256(data).hexdigest())


def written(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


def child_goes_on(root: pathlib.Path) -> None:
    """A child inherits the descriptor and writes after its parent has closed."""
    first, second = noise(3 * BLOCK + 1, 1), noise(2 * BLOCK + 7, 2)
    fd = os.open(root / "f", os.O_CREAT | os.O_WRONLY, 0o644)
    written(fd, first)
    code = f"import os, sys; sys.stdin.read(); import random; os.write({fd}, random.Random(2).randbytes({len(second)}))"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, pass_fds=[fd])
    os.close(fd)
    child.communicate(b"now")
    assert child.returncode == 0
    promise(root / "f", first + second)


def child_passes_by(root: pathlib.Path) -> None:
    """Children inherit the descriptor, do nothing with it and end while the
    file is being written: their ends publish nothing."""
    data = noise(8 * BLOCK + 5, 3)
    fd = os.open(root / "f", os.O_CREAT | os.O_WRONLY, 0o644)
    os.set_inheritable(fd, True)
    for off in range(0, len(data), BLOCK):
        written(fd, data[off:off + BLOCK])
        subprocess.run(["sleep", "0.05"], close_fds=False, check=True)
    os.close(fd)
    promise(root / "f", data)


def forked_writers(root: pathlib.Path) -> None:
    """Workers that were forked write their parts through one descriptor."""
    parts = [noise(5 * BLOCK + 3, i) for i in range(4)]
    fd = os.open(root / "f", os.O_CREAT | os.O_RDWR, 0o644)
    pids = []
    for i, part in enumerate(parts):
        pid = os.fork()
        if pid == 0:
            os.pwrite(fd, part, i * len(part))
            os._exit(0)
        pids.append(pid)
    assert [os.waitpid(p, 0)[1] for p in pids] == [0] * 4
    os.close(fd)
    promise(root / "f", b"".join(parts))


def closed_before_unmapped(root: pathlib.Path) -> None:
    """The mapping outlives the descriptor."""
    data = noise(4 * BLOCK + 9, 4)
    fd = os.open(root / "f", os.O_CREAT | os.O_RDWR, 0o644)
    os.ftruncate(fd, len(data))
    mapping = mmap.mmap(fd, len(data), mmap.MAP_SHARED)
    os.close(fd)  # Python's mmap keeps a duplicate, which close() below gives up before unmapping
    mapping[:] = data
    mapping.close()
    promise(root / "f", data)


def mapped_by_c(root: pathlib.Path) -> None:
    """As above by the system calls themselves: no descriptor is left when the
    mapping is written."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    data = noise(4 * BLOCK + 9, 5)
    fd = os.open(root / "f", os.O_CREAT | os.O_RDWR, 0o644)
    os.ftruncate(fd, len(data))
    address = libc.mmap(None, len(data), mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
    assert address != ctypes.c_void_p(-1).value, os.strerror(ctypes.get_errno())
    os.close(fd)
    ctypes.memmove(address, data, len(data))
    assert libc.munmap(address, len(data)) == 0
    promise(root / "f", data)


def duplicated(root: pathlib.Path) -> None:
    """Two descriptors of one open file: each close may publish, the last one
    publishes the whole."""
    data = noise(6 * BLOCK, 6)
    one = os.open(root / "f", os.O_CREAT | os.O_WRONLY, 0o644)
    two = os.dup(one)
    written(one, data[:BLOCK])
    written(two, data[BLOCK:3 * BLOCK])
    os.close(one)
    written(two, data[3 * BLOCK:])
    os.close(two)
    promise(root / "f", data)


def five_hundred(root: pathlib.Path) -> None:
    """500 files open for writing at once, written in turns."""
    parts = {f"f{i:03}": noise(5_000, i) for i in range(500)}
    fds = {name: os.open(root / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644) for name in parts}
    for half in (slice(0, 2_500), slice(2_500, None)):
        for name, fd in fds.items():
            written(fd, parts[name][half])
    for fd in fds.values():
        os.close(fd)
    for name, data in parts.items():
        promise(root / name, data)


def large(root: pathlib.Path) -> None:
    """Over 4 GiB, almost all of it holes."""
    edge, end = 4 << 30, 5 << 30
    fd = os.open(root / "f", os.O_CREAT | os.O_RDWR, 0o644)
    for off in (0, edge - 100_000, edge + 300_000, end - 1_000_001):
        os.pwrite(fd, noise(200_000, off), off)
    os.ftruncate(fd, end)
    os.close(fd)


def appended(root: pathlib.Path) -> None:
    """Log files: appended to by several, opened again, cut, appended to."""
    path, want = root / "log", b""
    for i in range(6):
        with open(path, "ab") as f:
            line = noise(BLOCK // 3, i) + b"\n"
            f.write(line)
            want += line
    os.truncate(path, BLOCK + 1)
    with open(path, "ab") as f:
        f.write(b"end")
    promise(path, want[:BLOCK + 1] + b"end")


def checkpoint(root: pathlib.Path) -> None:
    """As trainers save: a zip written with seeks under another name, synced,
    renamed over the one of the step before; then the folder is synced."""
    for step in range(3):
        temporary = root / "state.pt.part"
        with open(temporary, "wb") as f:
            with zipfile.ZipFile(f, "w", zipfile.ZIP_STORED) as z:
                z.writestr("archive/data.pkl", pickle.dumps({"step": step}))
                for i in range(3):
                    with z.open(f"archive/data/{i}", "w", force_zip64=True) as part:
                        part.write(noise(3 * BLOCK, step * 10 + i))
            f.flush()
            os.fsync(f.fileno())
        os.chmod(temporary, 0o640)
        os.replace(temporary, root / "state.pt")
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(folder)
        os.close(folder)
        with zipfile.ZipFile(root / "state.pt") as z:
            assert pickle.loads(z.read("archive/data.pkl")) == {"step": step}
            assert z.testzip() is None
    assert not temporary.exists()
    promise(root / "state.pt", (root / "state.pt").read_bytes())


def changed_in_place(root: pathlib.Path) -> None:
    """One block of a published file is written again, another appended."""
    data = bytearray(noise(20 * BLOCK + 11, 7))
    path = root / "f"
    path.write_bytes(data)
    with open(path, "r+b") as f:
        f.seek(7 * BLOCK + 100)
        f.write(b"changed")
        f.seek(0, os.SEEK_END)
        f.write(b"more")
    data[7 * BLOCK + 100:7 * BLOCK + 107] = b"changed"
    promise(path, bytes(data) + b"more")


def shuffled(root: pathlib.Path) -> None:
    """shutil: trees copied, moved and removed."""
    (root / "one" / "sub").mkdir(parents=True)
    for i in range(10):
        (root / "one" / "sub" / f"f{i}").write_bytes(noise(i * BLOCK // 3, i))
    (root / "one" / "link").symlink_to("sub/f3")
    shutil.copytree(root / "one", root / "two", symlinks=True)
    shutil.move(root / "one", root / "three")
    shutil.move(root / "three" / "sub" / "f9", root / "f9")
    shutil.rmtree(root / "two" / "sub")
    assert not (root / "one").exists()
    assert sorted(p.name for p in root.iterdir()) == ["f9", "three", "two"]
    promise(root / "f9", noise(9 * BLOCK // 3, 9))


if __name__ == "__main__":
    globals()[sys.argv[1]](pathlib.Path(sys.argv[2]))
