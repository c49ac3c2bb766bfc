// tests/fakecuda/race_clock.h: what is ordered before what inside of a block.
//
// A barrier of the block orders everything before it. Since the last one, only __syncwarp orders lanes of one warp:
// each lane has a clock, and knows how far it has seen those of the others. Shuffles and votes order no memory.
#ifndef PLAIT_TESTS_FAKECUDA_RACE_CLOCK_H
#define PLAIT_TESTS_FAKECUDA_RACE_CLOCK_H

#include <cstdint>
#include <cstring>

namespace fakecuda
{
namespace race
{

class WarpClock
{
  public:
    // Of `lane`, since barrier `since`; from 1.
    uint16_t time(int lane, uint32_t since) const { return since == epoch ? known[lane][lane] : 1; }

    // Whether what `other` did at `when` is ordered before what `lane` does now.
    bool knows(int lane, int other, uint16_t when, uint32_t since) const
    {
        return lane == other || (since == epoch && known[lane][other] >= when);
    }

    void sync(unsigned mask, uint32_t since)
    {
        if (since != epoch)
            reset(since);
        uint16_t seen[32] = {};
        for (int l = 0; l < 32; l++)
            if (mask >> l & 1)
                for (int k = 0; k < 32; k++)
                    seen[k] = seen[k] < known[l][k] ? known[l][k] : seen[k];
        for (int l = 0; l < 32; l++) {
            if (!(mask >> l & 1))
                continue;
            memcpy(known[l], seen, sizeof seen);
            known[l][l]++;
        }
    }

    void forget() { epoch = 0; }

  private:
    void reset(uint32_t since)
    {
        epoch = since;
        memset(known, 0, sizeof known);
        for (int l = 0; l < 32; l++)
            known[l][l] = 1;
    }

    uint32_t epoch = 0; // the barrier since which `known` counts; older ones are of no interest
    uint16_t known[32][32];
};

} // namespace race
} // namespace fakecuda
#endif
