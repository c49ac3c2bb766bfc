/* tests/golden/formula.h: the weights and tokens of the golden runs in closed form, as make_golden.py computes them.
 *
 * Every value is a multiple of 1/1024 (weights, biases) or 1/128 (norm weights) that fits 8 bits of mantissa, so it is
 * exact in every floating type. Element indices count in Hugging Face's orientation, row-major.
 */
#ifndef PLAIT_TESTS_GOLDEN_FORMULA_H
#define PLAIT_TESTS_GOLDEN_FORMULA_H

#include <cstdint>
#include <string>
#include <vector>

namespace golden
{

constexpr int kLayers = 2, kHidden = 16, kSeq = 16, kVocab = 257, kSequences = 4, kSteps = 10;
constexpr double kLr = 1e-3, kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-8, kWeightDecay = 0.1;
/* So that some steps are clipped and others are not. */
constexpr double kClipGpt2 = 0.72, kClipLlama = 0.9;
constexpr double kNormEps = 1e-5, kRotaryBase = 10000.0;

/* A mixing of two indices; the multipliers are those of xxHash32. */
inline uint32_t mix(uint32_t n, uint32_t k)
{
    uint32_t h = n * 0x9E3779B1u + k * 0x85EBCA77u + 0x27D4EB2Fu;
    h ^= h >> 15;
    h *= 0xC2B2AE3Du;
    h ^= h >> 13;
    h *= 0x165667B1u;
    return h ^ h >> 16;
}

/* Element k of tensor number n (its place in the list below): in [-0.125, 0.125), or in [0.875, 1.125) for the weight
 * of a norm. */
inline double weight(uint32_t n, bool norm_weight, int64_t k)
{
    uint32_t h = mix(n, static_cast<uint32_t>(k));
    return norm_weight ? 1.0 + (static_cast<int>(h & 31u) - 16) / 128.0 : (static_cast<int>(h & 255u) - 128) / 1024.0;
}

/* Token t, 0 <= t <= kSeq, of sequence b, 0 <= b < kSequences, in step s from 0. Inputs are t < kSeq, targets t + 1. */
inline int32_t token(int s, int b, int t)
{
    uint32_t noise = mix(1000u + static_cast<uint32_t>(s * kSequences + b), static_cast<uint32_t>(t)) % 5u;
    return (7 * t + 13 * b + 3 * s + static_cast<int32_t>(noise)) % kVocab;
}

struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    bool norm_weight;
};

/* GPT-2: heads 2, tied. Matrices of a layer are (in, out). */
inline std::vector<Tensor> gpt2_tensors()
{
    const int64_t C = kHidden;
    std::vector<Tensor> list = {{"wte.weight", {kVocab, C}, false}, {"wpe.weight", {kSeq, C}, false}};
    for (int i = 0; i < kLayers; i++) {
        const std::string h = "h." + std::to_string(i) + ".";
        const Tensor layer[] = {
            {h + "ln_1.weight", {C}, true},
            {h + "ln_1.bias", {C}, false},
            {h + "attn.c_attn.weight", {C, 3 * C}, false},
            {h + "attn.c_attn.bias", {3 * C}, false},
            {h + "attn.c_proj.weight", {C, C}, false},
            {h + "attn.c_proj.bias", {C}, false},
            {h + "ln_2.weight", {C}, true},
            {h + "ln_2.bias", {C}, false},
            {h + "mlp.c_fc.weight", {C, 4 * C}, false},
            {h + "mlp.c_fc.bias", {4 * C}, false},
            {h + "mlp.c_proj.weight", {4 * C, C}, false},
            {h + "mlp.c_proj.bias", {C}, false},
        };
        list.insert(list.end(), std::begin(layer), std::end(layer));
    }
    list.push_back({"ln_f.weight", {C}, true});
    list.push_back({"ln_f.bias", {C}, false});
    return list;
}

/* Llama: heads 4, key/value heads 2, feed-forward 24, untied. All matrices are (out, in). */
inline std::vector<Tensor> llama_tensors()
{
    const int64_t C = kHidden, KV = C / 2, F = 24;
    std::vector<Tensor> list = {{"model.embed_tokens.weight", {kVocab, C}, false}};
    for (int i = 0; i < kLayers; i++) {
        const std::string l = "model.layers." + std::to_string(i) + ".";
        const Tensor layer[] = {
            {l + "input_layernorm.weight", {C}, true},       {l + "self_attn.q_proj.weight", {C, C}, false},
            {l + "self_attn.k_proj.weight", {KV, C}, false}, {l + "self_attn.v_proj.weight", {KV, C}, false},
            {l + "self_attn.o_proj.weight", {C, C}, false},  {l + "post_attention_layernorm.weight", {C}, true},
            {l + "mlp.gate_proj.weight", {F, C}, false},     {l + "mlp.up_proj.weight", {F, C}, false},
            {l + "mlp.down_proj.weight", {C, F}, false},
        };
        list.insert(list.end(), std::begin(layer), std::end(layer));
    }
    list.push_back({"model.norm.weight", {C}, true});
    list.push_back({"lm_head.weight", {kVocab, C}, false});
    return list;
}

} // namespace golden
#endif
