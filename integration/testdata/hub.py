"""Downloads a model with the real huggingface_hub library, from a server in
this process that answers as the hub does.

    hub.py make DIR               the files of a small model, as a hub has them
    hub.py download DIR CACHE     all of it into the cache folder CACHE
    hub.py resume DIR CACHE       the same, the first attempt broken off in the middle of a file
    hub.py load CACHE             what the library finds in CACHE, without any network
    hub.py lock CACHE             two processes count with filelock in CACHE

download, resume and load print one line for each file of the snapshot: its
name, the link that it is, its digest.
"""
import hashlib
import http.server
import json
import os
import pathlib
import subprocess
import sys
import threading
import urllib.parse

REPO, COMMIT = "acme/tiny-llama", "0123456789abcdef0123456789abcdef01234567"
LARGE = 3 << 20  # as the hub: files over some size are "LFS", named by their SHA-256


def make(root: pathlib.Path) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    root.mkdir(parents=True)
    rng = np.random.default_rng(1)
    for i in (1, 2):
        save_file({f"layer.{i}.weight": rng.standard_normal((1024, 1024), np.float32)}, root / f"model-0000{i}-of-00002.safetensors")
    (root / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 1024}))
    (root / "tokenizer").mkdir()
    (root / "tokenizer" / "vocab.txt").write_text("\n".join(f"t{i}" for i in range(512)))


def etag(data: bytes) -> str:
    if len(data) > LARGE:
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub(http.server.BaseHTTPRequestHandler):
    """As much of the hub as a download asks for."""

    protocol_version = "HTTP/1.1"
    files: dict[str, bytes] = {}
    break_off: set[str] = set()  # names whose first download ends in the middle

    def log_message(self, *_: object) -> None: ...

    def send(self, status: int, body: bytes, kind: str, **headers: str) -> None:
        self.send_response(status)
        headers.setdefault("Content-Length", str(len(body)))
        for name, value in {"Content-Type": kind, "X-Repo-Commit": COMMIT, **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self) -> None:
        path = urllib.parse.unquote(urllib.parse.urlparse(self.path).path)
        if path.startswith(f"/api/models/{REPO}/tree/"):
            tree = [{"type": "file", "oid": etag(d), "size": len(d), "path": n} for n, d in self.files.items()]
            self.send(200, json.dumps(tree).encode(), "application/json")
        elif path.startswith(f"/api/models/{REPO}"):
            info = {"id": REPO, "modelId": REPO, "sha": COMMIT, "private": False, "siblings": [{"rfilename": n} for n in self.files]}
            self.send(200, json.dumps(info).encode(), "application/json")
        elif path.startswith(f"/{REPO}/resolve/"):
            self.send_file(path.split("/", 5)[5])
        else:
            self.send(404, b"{}", "application/json")

    do_HEAD = do_GET

    def send_file(self, name: str) -> None:
        if name not in self.files:
            self.send(404, b"", "text/plain", X_Error_Code="EntryNotFound")
            return
        data, begin, status = self.files[name], 0, 200
        headers = {"ETag": f'"{etag(data)}"', "Accept-Ranges": "bytes"}
        if wanted := self.headers.get("Range"):
            begin, status = int(wanted.removeprefix("bytes=").split("-")[0]), 206
            headers["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        body = data[begin:]
        headers["Content-Length"] = str(len(body))
        if self.command == "GET" and name in self.break_off:
            self.break_off.discard(name)
            body, self.close_connection = body[: len(body) // 2], True
        self.send(status, body, "application/octet-stream", **headers)


def serve(root: pathlib.Path) -> None:
    """Answers on loopback from now on; the library is told where."""
    Hub.files = {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["HF_ENDPOINT"] = f"http://127.0.0.1:{server.server_port}"


def quiet() -> None:
    os.environ |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
                   "HF_HUB_ETAG_TIMEOUT": "120", "HF_HUB_DOWNLOAD_TIMEOUT": "120", "HF_TOKEN_PATH": "/nonexistent", "NO_PROXY": "127.0.0.1"}


def show(snapshot: str) -> None:
    root = pathlib.Path(snapshot)
    for path in sorted(p for p in root.rglob("*") if not p.is_dir()):
        link = os.readlink(path) if path.is_symlink() else "not a link"
        print(path.relative_to(root), link, hashlib.sha256(path.read_bytes()).hexdigest())


def download(root: str, cache: str) -> None:
    serve(pathlib.Path(root))
    from huggingface_hub import snapshot_download

    show(snapshot_download(REPO, cache_dir=cache))


def resume(root: str, cache: str) -> None:
    Hub.break_off = {"model-00001-of-00002.safetensors"}
    download(root, cache)
    assert not Hub.break_off, "nothing was broken off"


def load(cache: str) -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    from huggingface_hub import scan_cache_dir, snapshot_download

    show(snapshot_download(REPO, cache_dir=cache, local_files_only=True))
    found = scan_cache_dir(cache)
    assert not found.warnings, found.warnings
    assert [r.repo_id for r in found.repos] == [REPO], found.repos


COUNT = """
import pathlib, sys
from filelock import FileLock
counter = pathlib.Path(sys.argv[1])
for _ in range(50):
    with FileLock(sys.argv[1] + ".lock"):
        counter.write_text(str(int(counter.read_text()) + 1))
"""


def lock(cache: str) -> None:
    counter = pathlib.Path(cache) / "counter"
    counter.write_text("0")
    both = [subprocess.Popen([sys.executable, "-c", COUNT, str(counter)]) for _ in range(2)]
    assert [p.wait() for p in both] == [0, 0]
    assert counter.read_text() == "100", counter.read_text()


if __name__ == "__main__":
    quiet()
    what, *arguments = sys.argv[1:]
    if what == "make":
        make(pathlib.Path(arguments[0]))
    else:
        {"download": download, "resume": resume, "load": load, "lock": lock}[what](*arguments)
