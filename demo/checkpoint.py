"""Makes and loads a checkpoint directory as model hubs lay them out.

    checkpoint.py make DIR [--mib 1024] [--shards 4] [--seed N]
    checkpoint.py load DIR

make writes it the way a trainer does: save_file straight into DIR, which may
lie on a mount.

load reads every tensor with the safetensors library by plain path and prints
one digest over all names, types, shapes and bytes.
"""
import argparse
import hashlib
import json
import pathlib
import time

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

HIDDEN = 2048  # columns of every weight; float16, so a row is 4 KiB


def random_weights(rng: np.random.Generator, rows: int) -> np.ndarray:
    bits = rng.integers(0, 1 << 64, size=rows * HIDDEN // 4, dtype=np.uint64)
    return bits.view(np.float16).reshape(rows, HIDDEN)


def make(args: argparse.Namespace) -> None:
    root = pathlib.Path(args.dir)
    root.mkdir(parents=True)
    rng = np.random.default_rng(args.seed)
    per_shard, layers, weight_map, total = (args.mib << 20) // args.shards, 8, {}, 0
    for shard in range(args.shards):
        name = f"model-{shard + 1:05d}-of-{args.shards:05d}.safetensors"
        rows = per_shard // layers // (HIDDEN * 2)
        tensors = {f"model.layers.{shard * layers + i}.mlp.up_proj.weight": random_weights(rng, rows) for i in range(layers)}
        tensors[f"model.layers.{shard}.input_layernorm.weight"] = np.ones(HIDDEN, np.float16)
        save_file(tensors, root / name, metadata={"format": "np"})
        weight_map |= {tensor: name for tensor in tensors}
        total += sum(t.nbytes for t in tensors.values())
    files = {
        "model.safetensors.index.json": {"metadata": {"total_size": total}, "weight_map": weight_map},
        "config.json": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN,
                        "num_hidden_layers": args.shards * layers, "torch_dtype": "float16", "vocab_size": 512},
        "generation_config.json": {"bos_token_id": 1, "eos_token_id": 2},
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 4096},
        "special_tokens_map.json": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
        "tokenizer.json": {"version": "1.0", "model": {"type": "BPE", "vocab": {f"t{i}": i for i in range(512)}, "merges": []}},
    }
    for name, content in files.items():
        (root / name).write_text(json.dumps(content, indent=1))
    print(f"made {args.shards} shards, {len(weight_map)} tensors, {total / 2**30:.2f} GiB")


def load(args: argparse.Namespace) -> None:
    root = pathlib.Path(args.dir)
    began = time.monotonic()
    index = json.loads((root / "model.safetensors.index.json").read_text())
    shards = sorted(set(index["weight_map"].values()))
    digest, size = hashlib.sha256(), 0
    for shard in shards:
        with safe_open(root / shard, framework="np") as f:
            for name in sorted(f.keys()):
                tensor = f.get_tensor(name)
                digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
                digest.update(tensor.data)
                size += tensor.nbytes
    for path in sorted(root.glob("*.json")):
        digest.update(path.name.encode() + path.read_bytes())
    if size != index["metadata"]["total_size"]:
        raise SystemExit(f"the index says {index['metadata']['total_size']} bytes, the tensors have {size}")
    seconds = time.monotonic() - began
    print(f"{digest.hexdigest()}  {size / 2**30:.2f} GiB of tensors in {seconds:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    maker = commands.add_parser("make")
    maker.add_argument("dir")
    maker.add_argument("--mib", type=int, default=1024)
    maker.add_argument("--shards", type=int, default=4)
    maker.add_argument("--seed", type=int, default=1)
    maker.set_defaults(run=make)
    loader = commands.add_parser("load")
    loader.add_argument("dir")
    loader.set_defaults(run=load)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
