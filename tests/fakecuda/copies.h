// tests/fakecuda/copies.h: cp.async of a thread.
#ifndef PLAIT_TESTS_FAKECUDA_COPIES_H
#define PLAIT_TESTS_FAKECUDA_COPIES_H

#include "tests/fakecuda/device/fakecuda_thread.h"

namespace fakecuda
{

void begin_copy(void *shared, const void *global, int valid, Place place);
void commit_copies();
// Until at most `newest` committed groups are under way.
void wait_for_copies(int newest, Place place);

} // namespace fakecuda
#endif
