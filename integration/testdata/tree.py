"""What another process sees of files.

    tree.py list DIR                a line for each name below DIR: kind, mode, owner, size, mtime, link or digest
    tree.py content DIR             the same without the times of directories, which move by themselves
    tree.py watch PATH READY        makes the file READY, then reads PATH again and again until standard input
                                    ends; then prints each different thing it saw: a digest, or "absent"
    tree.py holes PATH              the ranges of PATH that have data, and the digests of the first and last MiB
"""
import errno
import hashlib
import os
import select
import stat
import sys
import time

KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "link"}


def digest(path: bytes) -> str:
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def lines(root: bytes, dir_times: bool):
    for folder, dirs, files in os.walk(root):
        dirs.sort()
        for name in sorted(dirs + files):
            path = os.path.join(folder, name)
            st = os.lstat(path)
            kind = KINDS.get(stat.S_IFMT(st.st_mode), "other")
            what = {"file": digest, "link": os.readlink}.get(kind, lambda _: "")(path)
            size = "-" if kind == "dir" else st.st_size
            time = "-" if kind == "dir" and not dir_times else st.st_mtime_ns
            yield f"{os.path.relpath(path, root)!r} {kind} {stat.S_IMODE(st.st_mode):o} {st.st_uid}:{st.st_gid} {size} {time} {what}"


def listing(root: str) -> None:
    print("\n".join(lines(os.fsencode(root), dir_times=True)))


def content(root: str) -> None:
    print("\n".join(lines(os.fsencode(root), dir_times=False)))


def watch(path: str, ready: str) -> None:
    seen: dict[str, None] = {}
    open(ready, "x").close()
    while not select.select([sys.stdin], [], [], 0.01)[0]:
        began = time.monotonic()
        try:
            seen[digest(os.fsencode(path))] = None
        except FileNotFoundError:
            seen["absent"] = None
        except OSError as e:  # it was published again while this stood still for two seconds
            if e.errno != errno.ESTALE or time.monotonic() - began <= 2:
                raise
    print("\n".join(seen))


def holes(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    size, at = os.fstat(fd).st_size, 0
    while at < size:
        try:
            begin = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            break
        at = os.lseek(fd, begin, os.SEEK_HOLE)
        print("data", begin, at)
    for off in (0, max(0, size - (1 << 20))):
        print(off, hashlib.sha256(os.pread(fd, 1 << 20, off)).hexdigest())
    print("size", size)


if __name__ == "__main__":
    {"list": listing, "content": content, "watch": watch, "holes": holes}[sys.argv[1]](*sys.argv[2:])
