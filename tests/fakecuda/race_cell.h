// tests/fakecuda/race_cell.h: who touched two bytes of memory last.
#ifndef PLAIT_TESTS_FAKECUDA_RACE_CELL_H
#define PLAIT_TESTS_FAKECUDA_RACE_CELL_H

#include <cstdint>

namespace fakecuda
{
namespace race
{

const uint8_t kBothBytes = 3;

// Accesses of one kind that no order separates: by lanes of one warp, or by more than can be named.
struct Record {
    uint32_t run;   // of a block, or an operation without blocks; 0: nobody
    uint32_t lanes; // of `warp`; 0 for operations without threads
    uint32_t since; // barriers of the block before
    uint32_t code;  // address in the program
    uint16_t when;  // clock of the lanes; the largest of them
    uint8_t warp;
    uint8_t bytes : 2; // of the two
    uint8_t is_read : 1;
    uint8_t is_atomic : 1;
    uint8_t is_copy : 1;    // cp.async under way
    uint8_t many_warps : 1; // of the block, since the barrier
    uint8_t many_runs : 1;  // of the kernel
};

struct Cell {
    Record write, read;
    uint32_t more; // of records that neither replace nor join these: an index, 0 for none
};

} // namespace race
} // namespace fakecuda
#endif
