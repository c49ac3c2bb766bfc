/* tests/models/matrix_run.h: runs rows of the matrix and compares each with one rank that trains the same model. */
#ifndef PLAIT_TESTS_MATRIX_RUN_H
#define PLAIT_TESTS_MATRIX_RUN_H

#include "matrix.h"
#include "training_run.h"

// Three steps of each row. Losses, norms and weights are those of one rank; replicated weights have equal bits; memory
// and traffic are as planned and as the closed forms say; the pipeline keeps as many micro-batches as its schedule
// says. Returns how many rows were run and compared in full. `device`: overrides that the rows have besides, and the
// one rank does not. Collective over the test's world.
int run_rows(const std::vector<Row> &rows, const Overrides &numbers, const Tolerance &tolerance,
             const Overrides &device = {});

#endif
