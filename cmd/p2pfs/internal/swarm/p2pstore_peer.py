"""One process of p2pstore, over TCP, for the columns beside p2pfs.

    p2pstore_peer.py put FILE REDIS HOST    puts the file's bytes, says "ready", serves them until its input ends
    p2pstore_peer.py get SIZE REDIS HOST    says "ready", gets them once it has read a line, says "done"
"""
import asyncio
import os
import socket
import sys

import numpy as np

os.environ["P2PSTORE_DISABLE_LOG"] = "1"
talk = os.fdopen(os.dup(1), "w")  # the library prints to standard output
os.dup2(2, 1)

from p2pstore import P2PClient, P2PConfig  # noqa: E402

what, of, redis, host = sys.argv[1:]
with socket.create_server((host, 0)) as s:
    port = s.getsockname()[1]
client = P2PClient(P2PConfig(metadata_server=redis, protocol="tcp", local_host=f"{host}:{port}"))


def say(word: str) -> None:
    print(word, file=talk, flush=True)


async def put() -> None:
    if not await client.put("file", np.fromfile(of, dtype=np.uint8)):
        sys.exit("put failed")
    say("ready")
    await asyncio.to_thread(sys.stdin.read)


async def get() -> None:
    say("ready")
    await asyncio.to_thread(sys.stdin.readline)
    got = await client.get("file")
    if got is None or len(got) != int(of):
        sys.exit(f"got {'nothing' if got is None else len(got)} instead of {of} bytes")
    say("done")


asyncio.run({"put": put, "get": get}[what]())
talk.flush()
os._exit(0)  # its threads end with it
