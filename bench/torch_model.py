"""A GPT-2 or a Llama in PyTorch, unless said the model of configs/bench-b6.yaml: the other side of
bench/compare_torch.sh and tests/device.sh.

GPT-2: learned positions, pre-LayerNorm blocks with biases, tanh GELU, tied head. Llama: rotary positions, RMSNorm,
grouped queries, SwiGLU, no biases, a head of its own. Fused AdamW, gradient clipping at 1. Tokens are drawn once a step
from a fixed generator; the time of a step is from the batch to the updated weights. Writes one JSON object a step, with
the keys of Plait's metrics file that matter here.
"""

import argparse
import json
import math
import time

import torch
from torch import nn
from torch.nn import functional as F


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocab, layers, width, heads, length):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(GptBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        initialize(self, layers)

    def forward(self, x):
        x = self.tokens(x) + self.positions.weight[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


def rotated(x, cosine, sine):
    """Element i of a head turns with element i + half of it."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1).to(x.dtype)


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, groups, ffn):
        super().__init__()
        self.size = width // heads
        self.norm1 = nn.RMSNorm(width, eps=1e-5)
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * groups * self.size, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.norm2 = nn.RMSNorm(width, eps=1e-5)
        self.gate = nn.Linear(width, ffn, bias=False)
        self.up = nn.Linear(width, ffn, bias=False)
        self.down = nn.Linear(ffn, width, bias=False)

    def forward(self, x, cosine, sine):
        batch, length, width = x.shape
        normed = self.norm1(x)
        q = self.q(normed).view(batch, length, -1, self.size).transpose(1, 2)
        k, v = self.kv(normed).view(batch, length, 2, -1, self.size).permute(2, 0, 3, 1, 4)
        q, k = rotated(q, cosine, sine), rotated(k, cosine, sine)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(batch, length, width))
        normed = self.norm2(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Llama(nn.Module):
    def __init__(self, vocab, layers, width, heads, groups, ffn, length, base=500000.0):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, groups, ffn) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, vocab, bias=False)
        half = width // heads // 2
        angles = torch.outer(torch.arange(length), base ** (-torch.arange(half) / half))
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)
        initialize(self, layers)

    def forward(self, x):
        cosine, sine = self.cosine[: x.shape[1]], self.sine[: x.shape[1]]
        x = self.tokens(x)
        for block in self.blocks:
            x = block(x, cosine, sine)
        return self.head(self.norm(x))


def initialize(model, layers):
    for name, p in model.named_parameters():
        if p.dim() == 2:
            residual = name.endswith(("proj.weight", "down.weight"))
            nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if residual else 0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(p)


def make_model(args):
    if args.arch == "gpt2":
        return Gpt(args.vocab, args.layers, args.width, args.heads, args.length)
    return Llama(args.vocab, args.layers, args.width, args.heads, args.groups or args.heads, args.ffn, args.length)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", choices=["gpt2", "llama"], default="gpt2")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--groups", type=int, help="key/value heads of a Llama; default: as many as heads")
    parser.add_argument("--ffn", type=int, default=1024, help="width of a Llama's SwiGLU")
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--metrics", required=True)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    model = make_model(args).to(args.device)
    forward = torch.compile(model) if args.compile else model
    decayed = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)

    with open(args.metrics, "w") as out:
        for step in range(1, args.steps + 1):
            batch = torch.randint(0, 256, (args.batch, args.length + 1)).to(args.device)
            if args.device == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
            with torch.autocast(args.device, torch.bfloat16, enabled=args.dtype == "bf16"):
                logits = forward(batch[:, :-1])
                loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if args.device == "cuda":
                torch.cuda.synchronize()
            seconds = time.perf_counter() - start
            line = {
                "step": step,
                "loss": loss.item(),
                "grad_norm": norm.item(),
                "tokens_per_second": args.batch * args.length / seconds,
                "step_seconds": seconds,
            }
            print(json.dumps(line), file=out)


if __name__ == "__main__":
    main()
