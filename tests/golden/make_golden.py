#!/usr/bin/env python3
"""Golden training curves from PyTorch in float64, for Plait's tests.

    make_golden.py            writes golden_gpt2.json and golden_llama.json beside this file
    make_golden.py --check    computes the loss of the two small Hugging Face files in tests/data/hf

The models are written out here and share no code with Plait. Weights and tokens are those of formula.h, so nothing but
the numbers of the result needs to be kept. Loss: mean over all tokens of the 4 sequences of a step. AdamW with decay on
every tensor of two dimensions; gradients clipped with factor min(1, clip / (norm + 1e-6));
clip is such that some steps are clipped and others are not.
"""
import json
import math
import os
import struct
import sys

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
LAYERS, HIDDEN, SEQ, VOCAB, SEQUENCES, STEPS = 2, 16, 16, 257, 4, 10
LR, BETA1, BETA2, EPS, DECAY = 1e-3, 0.9, 0.95, 1e-8, 0.1
M32 = 0xFFFFFFFF


def mix(n, k):
    h = (n * 0x9E3779B1 + k * 0x85EBCA77 + 0x27D4EB2F) & M32
    h ^= h >> 15
    h = h * 0xC2B2AE3D & M32
    h ^= h >> 13
    h = h * 0x165667B1 & M32
    return h ^ h >> 16


def weight(n, norm_weight, k):
    h = mix(n, k)
    return 1.0 + ((h & 31) - 16) / 128.0 if norm_weight else ((h & 255) - 128) / 1024.0


def token(s, b, t):
    return (7 * t + 13 * b + 3 * s + mix(1000 + s * SEQUENCES + b, t) % 5) % VOCAB


def gpt2_shapes():
    c = HIDDEN
    shapes = [("wte.weight", (VOCAB, c)), ("wpe.weight", (SEQ, c))]
    for i in range(LAYERS):
        h = f"h.{i}."
        shapes += [(h + "ln_1.weight", (c,)), (h + "ln_1.bias", (c,)),
                   (h + "attn.c_attn.weight", (c, 3 * c)), (h + "attn.c_attn.bias", (3 * c,)),
                   (h + "attn.c_proj.weight", (c, c)), (h + "attn.c_proj.bias", (c,)),
                   (h + "ln_2.weight", (c,)), (h + "ln_2.bias", (c,)),
                   (h + "mlp.c_fc.weight", (c, 4 * c)), (h + "mlp.c_fc.bias", (4 * c,)),
                   (h + "mlp.c_proj.weight", (4 * c, c)), (h + "mlp.c_proj.bias", (c,))]
    return shapes + [("ln_f.weight", (c,)), ("ln_f.bias", (c,))]


def llama_shapes():
    c, kv, f = HIDDEN, HIDDEN // 2, 24
    shapes = [("model.embed_tokens.weight", (VOCAB, c))]
    for i in range(LAYERS):
        l = f"model.layers.{i}."
        shapes += [(l + "input_layernorm.weight", (c,)), (l + "self_attn.q_proj.weight", (c, c)),
                   (l + "self_attn.k_proj.weight", (kv, c)), (l + "self_attn.v_proj.weight", (kv, c)),
                   (l + "self_attn.o_proj.weight", (c, c)), (l + "post_attention_layernorm.weight", (c,)),
                   (l + "mlp.gate_proj.weight", (f, c)), (l + "mlp.up_proj.weight", (f, c)),
                   (l + "mlp.down_proj.weight", (c, f))]
    return shapes + [("model.norm.weight", (c,)), ("lm_head.weight", (VOCAB, c))]


def is_norm_weight(name):
    return name.endswith(("norm.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight"))


def attention(q, k, v):
    """q, k, v: (batch, heads, seq, head size); causal."""
    t = q.shape[2]
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
    scores = scores.masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf"))
    return torch.softmax(scores, -1) @ v


def gpt2_logits(w, x, heads, eps=1e-5):
    b, t = x.shape
    c = w["wte.weight"].shape[1]
    norm = lambda y, n: F.layer_norm(y, (c,), w[n + ".weight"], w[n + ".bias"], eps)
    linear = lambda y, n: y @ w[n + ".weight"] + w[n + ".bias"]
    y = w["wte.weight"][x] + w["wpe.weight"][:t]
    i = 0
    while f"h.{i}.ln_1.weight" in w:
        h = f"h.{i}."
        q, k, v = linear(norm(y, h + "ln_1"), h + "attn.c_attn").split(c, 2)
        cut = lambda z: z.reshape(b, t, heads, c // heads).transpose(1, 2)
        y = y + linear(attention(cut(q), cut(k), cut(v)).transpose(1, 2).reshape(b, t, c), h + "attn.c_proj")
        y = y + linear(F.gelu(linear(norm(y, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh"), h + "mlp.c_proj")
        i += 1
    return norm(y, "ln_f") @ w["wte.weight"].T


def rotate(x, base=10000.0):
    """Pairs (j, j + d/2) of each head by t base^(-2j/d)."""
    t, d = x.shape[2], x.shape[3]
    angle = torch.arange(t, dtype=x.dtype)[:, None] * base ** (-torch.arange(0, d, 2, dtype=x.dtype) / d)
    low, high = x[..., : d // 2], x[..., d // 2:]
    return torch.cat((low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()), -1)


def llama_logits(w, x, heads, eps=1e-5):
    b, t = x.shape
    c = w["model.embed_tokens.weight"].shape[1]
    d = c // heads
    norm = lambda y, n: y * torch.rsqrt((y * y).mean(-1, keepdim=True) + eps) * w[n + ".weight"]
    linear = lambda y, n: y @ w[n + ".weight"].T
    y = w["model.embed_tokens.weight"][x]
    i = 0
    while f"model.layers.{i}.input_layernorm.weight" in w:
        l = f"model.layers.{i}."
        z = norm(y, l + "input_layernorm")
        q, k, v = (linear(z, l + f"self_attn.{n}_proj").reshape(b, t, -1, d).transpose(1, 2) for n in "qkv")
        repeat = heads // k.shape[1]
        o = attention(rotate(q), rotate(k).repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1))
        y = y + linear(o.transpose(1, 2).reshape(b, t, c), l + "self_attn.o_proj")
        z = norm(y, l + "post_attention_layernorm")
        y = y + linear(F.silu(linear(z, l + "mlp.gate_proj")) * linear(z, l + "mlp.up_proj"), l + "mlp.down_proj")
        i += 1
    return linear(norm(y, "model.norm"), "lm_head")


def mean_loss(logits, targets):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def train(logits_of, shapes, heads, clip):
    w, first, second, sums = {}, {}, {}, {}
    for n, (name, shape) in enumerate(shapes):
        values = [weight(n, is_norm_weight(name), k) for k in range(math.prod(shape))]
        sums[name] = sum((k % 97 + 1) * v for k, v in enumerate(values))
        w[name] = torch.tensor(values, dtype=torch.float64).reshape(shape).requires_grad_()
        first[name], second[name] = torch.zeros_like(w[name]), torch.zeros_like(w[name])
    steps = []
    for s in range(STEPS):
        tokens = torch.tensor([[token(s, b, t) for t in range(SEQ + 1)] for b in range(SEQUENCES)])
        loss = mean_loss(logits_of(w, tokens[:, :-1], heads), tokens[:, 1:])
        grads = torch.autograd.grad(loss, list(w.values()))
        norm = math.sqrt(sum((g * g).sum().item() for g in grads))
        factor = min(1.0, clip / (norm + 1e-6))
        with torch.no_grad():
            for (name, p), g in zip(w.items(), grads):
                g = g * factor
                first[name] = BETA1 * first[name] + (1 - BETA1) * g
                second[name] = BETA2 * second[name] + (1 - BETA2) * g * g
                update = first[name] / (1 - BETA1 ** (s + 1))
                update = update / ((second[name] / (1 - BETA2 ** (s + 1))).sqrt() + EPS)
                p -= LR * (update + (DECAY * p if p.dim() == 2 else 0.0))
        steps.append({"loss": loss.item(), "grad_norm": norm})
    weights = {}
    for name, p in w.items():
        flat = p.detach().reshape(-1)
        weights[name] = {str(k): flat[k].item() for k in (0, len(flat) // 2, len(flat) - 1)}
    token_hash = 0
    for s in range(STEPS):
        for b in range(SEQUENCES):
            for t in range(SEQ + 1):
                token_hash = (token_hash * 31 + token(s, b, t)) % 1000003
    return {"clip_grad": clip, "initial_sums": sums, "token_hash": token_hash, "steps": steps, "weights": weights}


def read_safetensors(path):
    """F32 only: what the two small files have."""
    with open(path, "rb") as f:
        data = f.read()
    (n,) = struct.unpack("<Q", data[:8])
    w = {}
    for name, e in json.loads(data[8:8 + n]).items():
        if name != "__metadata__":
            a, b = e["data_offsets"]
            values = struct.unpack(f"<{(b - a) // 4}f", data[8 + n + a:8 + n + b])
            w[name] = torch.tensor(values, dtype=torch.float64).reshape(e["shape"])
    return w


def check():
    tokens = torch.tensor([[3, 10, 17, 24, 31, 6, 13, 20, 27, 2, 9, 16, 23, 30, 5, 12, 19]])
    for directory, logits_of, want in (("llama_tiny", llama_logits, 3.564010), ("gpt2_tiny", gpt2_logits, 3.895022)):
        w = read_safetensors(os.path.join(HERE, "..", "data", "hf", directory, "model.safetensors"))
        w = {name.removeprefix("transformer."): v for name, v in w.items()}
        loss = mean_loss(logits_of(w, tokens[:, :-1], 4), tokens[:, 1:]).item()
        print(f"{directory}: {loss:.6f}, expected {want:.6f}")
        assert abs(loss - want) < 2e-6


def main():
    if sys.argv[1:] == ["--check"]:
        return check()
    for name, logits_of, shapes, heads, clip in (("gpt2", gpt2_logits, gpt2_shapes(), 2, 0.72),
                                                 ("llama", llama_logits, llama_shapes(), 4, 0.9)):
        with open(os.path.join(HERE, f"golden_{name}.json"), "w") as f:
            json.dump(train(logits_of, shapes, heads, clip), f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
