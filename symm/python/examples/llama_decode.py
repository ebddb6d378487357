# SPDX-License-Identifier: MIT
"""A Llama decoder, tensor parallel, in a CUDA graph: torchrun --nproc-per-node 2 llama_decode.py

Each rank has its part of the heads and of the MLP. What its last matrix of each half makes lies in
a symmetric buffer, and one all_reduce adds the ranks' parts. On CUDA a step is captured once and
replayed for each token; replays run no host code. The tokens must be those of the whole model,
which rank 0 computes for itself. Without a GPU the same steps run on CPU tensors.

    --compile     the step by torch.compile instead: functional all_reduces of torch, which
                  symm.torch.fuse_norm() fuses with the addition and the norm that follow
    --layers --hidden --mlp --heads --kv-heads    of the model; default: a small one
    --batch --tokens                              sequences, and tokens of each
"""

import argparse
import os
import statistics
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.nn.functional as F

import symm

HEAD, VOCABULARY = 64, 1024
# In bfloat16 two logits may be equal, and sums in another order choose another token.
DTYPE = torch.float32


@dataclass
class Layer:
    """A layer's weights: of the whole model, or a rank's part of them."""

    qkv: torch.Tensor  # [hidden, (heads + 2 kv_heads) HEAD]
    out: torch.Tensor  # [heads HEAD, hidden]
    gate_up: torch.Tensor  # [hidden, 2 mlp]
    down: torch.Tensor  # [mlp, hidden]
    keys: torch.Tensor  # [batch, kv_heads, tokens, HEAD]
    values: torch.Tensor

    def part(self, options, rank, size):
        def columns(weights, counts):
            blocks = weights.split(counts, 1)
            return torch.cat([block.chunk(size, 1)[rank] for block in blocks], 1).contiguous()

        kv = options.kv_heads * HEAD
        return Layer(
            columns(self.qkv, [options.heads * HEAD, kv, kv]),
            self.out.chunk(size, 0)[rank].contiguous(),
            columns(self.gate_up, [options.mlp, options.mlp]),
            self.down.chunk(size, 0)[rank].contiguous(),
            self.keys.chunk(size, 1)[rank].clone(),
            self.values.chunk(size, 1)[rank].clone(),
        )


def make_layers(options, device, dtype):
    generator = torch.Generator(device).manual_seed(1)

    def normal(rows, columns):
        weights = torch.randn(rows, columns, device=device, generator=generator)
        return (weights * rows**-0.5).to(dtype)

    hidden, inner = options.hidden, options.heads * HEAD
    cache = (options.batch, options.kv_heads, options.tokens + 1, HEAD)
    return [
        Layer(normal(hidden, inner + 2 * options.kv_heads * HEAD), normal(inner, hidden),
              normal(hidden, 2 * options.mlp), normal(options.mlp, hidden),
              torch.zeros(cache, device=device, dtype=dtype),
              torch.zeros(cache, device=device, dtype=dtype))
        for _ in range(options.layers)
    ]


def rotate(x, position):
    """Rotary embedding of x [batch, heads, HEAD] at the position, a tensor of one element."""
    frequency = 10000.0 ** (-torch.arange(0, HEAD, 2, device=x.device) / HEAD)
    angle = position * frequency
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()],
                     -1).to(x.dtype)


class Decoder:
    """One step takes self.token at self.position and leaves the next token there."""

    def __init__(self, layers, embedding, batch, project):
        device = embedding.device
        self.layers, self.embedding, self.project = layers, embedding, project
        self.token = torch.arange(batch, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)

    def attention(self, layer, x):
        batch, kv_heads, tokens, _ = layer.keys.shape
        heads = layer.out.shape[0] // HEAD
        q, k, v = (x @ layer.qkv).view(batch, -1, HEAD).split([heads, kv_heads, kv_heads], 1)
        layer.keys.index_copy_(2, self.position, rotate(k, self.position)[:, :, None])
        layer.values.index_copy_(2, self.position, v[:, :, None])
        seen = torch.arange(tokens, device=x.device) <= self.position
        made = F.scaled_dot_product_attention(
            rotate(q, self.position)[:, :, None], layer.keys, layer.values,
            attn_mask=seen[None, None, None], enable_gqa=True)
        return made.reshape(batch, heads * HEAD)

    def step(self):
        x = self.embedding[self.token]
        for layer in self.layers:
            h = F.rms_norm(x, x.shape[-1:])
            x = x + self.project("attention", self.attention(layer, h), layer.out)
            gate, up = (F.rms_norm(x, x.shape[-1:]) @ layer.gate_up).chunk(2, 1)
            x = x + self.project("mlp", F.silu(gate) * up, layer.down)
        logits = F.rms_norm(x, x.shape[-1:]).float() @ self.embedding.float().T
        self.token.copy_(logits.argmax(1))
        self.position += 1


def reduced_project(team, batch, hidden, dtype):
    """x @ weights, summed over the ranks: the product is written to a symmetric buffer."""
    buffers = {
        site: team.empty((batch, hidden), dtype, site=site) for site in ("attention", "mlp")
    }
    team.rendezvous()  # the only collective step that is not in the loop
    tensors = {site: buffer.as_torch() for site, buffer in buffers.items()}

    def project(site, x, weights):
        part = torch.mm(x, weights, out=tensors[site])
        total = torch.empty_like(part)
        team.all_reduce(part, total, site=site)  # on torch's current stream
        return total

    return project


def functional_project(_, x, weights):
    """x @ weights, summed over the ranks, for torch.compile."""
    return funcol.all_reduce(x @ weights, "sum", dist.group.WORLD)


def captured(decoder):
    """The step as a CUDA graph; one step is run first, outside of it, and undone."""
    token = decoder.token.clone()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        decoder.step()
    torch.cuda.current_stream().wait_stream(stream)
    decoder.token.copy_(token)
    decoder.position.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decoder.step()
    return graph.replay


def decode(decoder, step, tokens):
    """The tokens [tokens, batch] and the median time of a step in microseconds."""
    made, times = [], []
    for _ in range(tokens):
        start = time.perf_counter()
        step()
        made.append(decoder.token.clone().cpu())  # waits for the step
        times.append((time.perf_counter() - start) * 1e6)
    return torch.stack(made), statistics.median(times)


def parse():
    parser = argparse.ArgumentParser()
    for name, value in (("layers", 4), ("hidden", 512), ("mlp", 1024), ("heads", 8),
                        ("kv-heads", 4), ("batch", 3), ("tokens", 16)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--compile", action="store_true")
    return parser.parse_args()


def run(options, device, rank, size, project, compiled=False):
    """Decodes, and compares rank 0's tokens with those of the whole model; the median step in us."""
    if options.kv_heads % size or options.mlp % size:
        raise SystemExit(f"{size} ranks cannot share {options.kv_heads} key heads")
    layers = make_layers(options, device, DTYPE)
    embedding = torch.randn(VOCABULARY, options.hidden, device=device,
                            generator=torch.Generator(device).manual_seed(2))
    parts = [layer.part(options, rank, size) for layer in layers]
    mine = Decoder(parts, embedding, options.batch, project)
    if compiled:
        mine.step = torch.compile(mine.step, fullgraph=True)
    step = captured(mine) if device.type == "cuda" else mine.step
    tokens, microseconds = decode(mine, step, options.tokens)
    if rank == 0:
        whole = Decoder(layers, embedding, options.batch, lambda _, x, weights: x @ weights)
        want, _ = decode(whole, whole.step, options.tokens)
        assert torch.equal(tokens, want), "the tokens are not those of the whole model"
    return microseconds


def run_compiled(options, device):
    import symm.torch

    dist.init_process_group("symm")
    fusion = symm.torch.fuse_norm(device=device)
    rank, size = dist.get_rank(), dist.get_world_size()
    microseconds = run(options, device, rank, size, functional_project, compiled=True)
    fused = symm.torch.counters()["all_reduce_norm"][0]
    # Captured steps are counted at their capture, and once before it.
    steps = options.tokens if device.type == "cpu" else 2
    assert fused == 2 * options.layers * steps, (fused, fusion.left)
    if rank == 0:
        print(f"right: {options.tokens * options.batch} tokens on {size} ranks, "
              f"{2 * options.layers} fused calls and {microseconds:.0f} us a step")
    fusion.close()
    dist.destroy_process_group()


def main():
    options, cuda = parse(), torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    device = torch.device("cuda" if cuda else "cpu")
    torch.set_grad_enabled(False)
    if options.compile:
        run_compiled(options, device)
        return
    with symm.init() as ctx:
        team = ctx.world
        project = reduced_project(team, options.batch, options.hidden, DTYPE)
        microseconds = run(options, device, team.rank, team.size, project)
        if team.rank == 0:
            print(f"right: {options.tokens * options.batch} tokens on {team.size} ranks, "
                  f"{microseconds:.0f} us a step")
        team.barrier()


if __name__ == "__main__":
    main()
