// Operations in which the lanes of a warp come together.
#include "tests/fakecuda/block.h"
#include "tests/fakecuda/instructions.h"
#include "tests/fakecuda/race.h"
#include "tests/fakecuda/streams.h"

#include <cstring>

namespace fakecuda
{

namespace
{

const char *name_of(WarpOperation operation)
{
    switch (operation) {
    case WarpOperation::sync:
        return "__syncwarp";
    case WarpOperation::shuffle:
        return "a shuffle";
    case WarpOperation::ballot:
        return "a vote";
    case WarpOperation::match:
        return "__match_any_sync";
    case WarpOperation::reduce_add:
        return "__reduce_add_sync";
    case WarpOperation::reduce_min:
        return "__reduce_min_sync";
    case WarpOperation::reduce_max:
        return "__reduce_max_sync";
    case WarpOperation::mma_bf16:
    case WarpOperation::mma_fp16:
        return "mma";
    case WarpOperation::ldmatrix:
    case WarpOperation::ldmatrix_trans:
        return "ldmatrix";
    }
    return "?";
}

bool in(unsigned mask, int lane)
{
    return mask >> lane & 1;
}

uint64_t value_of(const BlockThread &lane)
{
    return *static_cast<const uint64_t *>(lane.in);
}

void give(const BlockThread &lane, uint64_t value)
{
    *static_cast<uint64_t *>(lane.out) = value;
}

void shuffle(BlockThread *lanes, unsigned mask)
{
    uint64_t values[kLanes];
    for (int l = 0; l < kLanes; l++)
        if (in(mask, l))
            values[l] = value_of(lanes[l]);
    for (int l = 0; l < kLanes; l++) {
        if (!in(mask, l))
            continue;
        const int from = static_cast<int>(lanes[l].argument);
        if (!in(mask, from)) {
            current = &lanes[l];
            die("a shuffle at %s reads lane %d, which has ended or is not in the mask (lanes %08x)",
                text_of(lanes[l].place).c_str(), from, mask);
        }
        give(lanes[l], values[from]);
    }
}

void ballot(BlockThread *lanes, unsigned mask)
{
    uint64_t votes = 0;
    for (int l = 0; l < kLanes; l++)
        if (in(mask, l) && value_of(lanes[l]))
            votes |= 1u << l;
    for (int l = 0; l < kLanes; l++)
        if (in(mask, l))
            give(lanes[l], votes);
}

void match(BlockThread *lanes, unsigned mask)
{
    for (int l = 0; l < kLanes; l++) {
        if (!in(mask, l))
            continue;
        uint64_t same = 0;
        for (int k = 0; k < kLanes; k++)
            if (in(mask, k) && value_of(lanes[k]) == value_of(lanes[l]))
                same |= 1u << k;
        give(lanes[l], same);
    }
}

// Of 32-bit integers; `argument` is 1 where they have a sign.
void reduce(BlockThread *lanes, unsigned mask, WarpOperation operation)
{
    bool first = true;
    int64_t sum = 0;
    for (int l = 0; l < kLanes; l++) {
        if (!in(mask, l))
            continue;
        const uint32_t bits = static_cast<uint32_t>(value_of(lanes[l]));
        const int64_t v = lanes[l].argument ? static_cast<int32_t>(bits) : static_cast<int64_t>(bits);
        if (first)
            sum = v;
        else if (operation == WarpOperation::reduce_add)
            sum += v;
        else if ((operation == WarpOperation::reduce_min) == (v < sum))
            sum = v;
        first = false;
    }
    for (int l = 0; l < kLanes; l++)
        if (in(mask, l))
            give(lanes[l], static_cast<uint32_t>(sum));
}

void complete(int warp, const WarpGroup &group)
{
    BlockThread *lanes = &block.threads[warp * kLanes];
    const unsigned mask = group.mask & block.warps[warp].live;
    switch (group.operation) {
    case WarpOperation::sync:
        race::sync_warp(warp, mask);
        break;
    case WarpOperation::shuffle:
        shuffle(lanes, mask);
        break;
    case WarpOperation::ballot:
        ballot(lanes, mask);
        break;
    case WarpOperation::match:
        match(lanes, mask);
        break;
    case WarpOperation::reduce_add:
    case WarpOperation::reduce_min:
    case WarpOperation::reduce_max:
        reduce(lanes, mask, group.operation);
        break;
    case WarpOperation::mma_bf16:
        mma(lanes, MmaType::bf16);
        break;
    case WarpOperation::mma_fp16:
        mma(lanes, MmaType::fp16);
        break;
    case WarpOperation::ldmatrix:
        ldmatrix(lanes, false);
        break;
    case WarpOperation::ldmatrix_trans:
        ldmatrix(lanes, true);
        break;
    }
}

// An instruction of the whole warp has no meaning without some of its lanes.
bool needs_all(WarpOperation operation)
{
    return operation >= WarpOperation::mma_bf16;
}

WarpGroup *group_of(Warp &warp, unsigned mask, WarpOperation operation, Place place)
{
    for (int i = 0; i < warp.num_groups; i++) {
        WarpGroup &g = warp.groups[i];
        if (!(g.mask & mask))
            continue;
        if (g.mask != mask || g.operation != operation)
            die("lanes of a warp meet in different operations: %s with mask %08x at %s, %s with mask %08x at %s",
                name_of(g.operation), g.mask, text_of(g.place).c_str(), name_of(operation), mask,
                text_of(place).c_str());
        return &g;
    }
    WarpGroup &g = warp.groups[warp.num_groups++];
    g = {mask, 0, operation, place};
    return &g;
}

bool is_complete(const Warp &warp, const WarpGroup &group)
{
    return group.arrived == (group.mask & warp.live);
}

// Does the operation and takes the group from the list; the lanes that waited are to be made ready.
unsigned finish(int w, WarpGroup *group)
{
    Warp &warp = block.warps[w];
    const WarpGroup done = *group;
    *group = warp.groups[--warp.num_groups];
    complete(w, done);
    return done.arrived;
}

} // namespace

void meet_warp(WarpOperation operation, unsigned mask, const void *in_value, unsigned argument, void *out, Place place)
{
    BlockThread *me = running();
    Warp &warp = block.warps[me->warp];
    const unsigned bit = 1u << me->lane;
    if (!(mask & bit))
        die("the mask %08x of %s at %s does not name the calling lane %d", mask, name_of(operation),
            text_of(place).c_str(), me->lane);
    if (needs_all(operation) && warp.live != ~0u)
        die("%s at %s without all 32 lanes: only %08x have not ended", name_of(operation), text_of(place).c_str(),
            warp.live);
    WarpGroup *group = group_of(warp, mask, operation, place);
    me->place = place;
    me->in = in_value;
    me->argument = argument;
    me->out = out;
    group->arrived |= bit;
    if (!is_complete(warp, *group)) {
        suspend();
        return;
    }
    const unsigned lanes = finish(me->warp, group);
    if (goes_on()) {
        if (lanes & ~bit)
            make_ready(me->warp, lanes & ~bit);
    } else {
        make_ready(me->warp, lanes);
        suspend();
    }
}

void leave_warp(BlockThread *thread)
{
    Warp &warp = block.warps[thread->warp];
    warp.live &= ~(1u << thread->lane);
    for (int i = 0; i < warp.num_groups; i++) {
        if (!is_complete(warp, warp.groups[i]))
            continue;
        const unsigned lanes = finish(thread->warp, &warp.groups[i]);
        make_ready(thread->warp, lanes);
        i--;
    }
}

} // namespace fakecuda
