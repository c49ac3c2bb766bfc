/* tests/models/matrix_run.h: runs rows of the matrix and compares each with one rank that trains the same model. */
#ifndef PLAIT_TESTS_MATRIX_RUN_H
#define PLAIT_TESTS_MATRIX_RUN_H

#include "matrix.h"

// What the models train to on one rank; made once a job and kind of numbers. Collective over the test's world.
const std::vector<RunResult> &matrix_references(const Overrides &numbers, const Tolerance &tolerance);

// Three steps of each row. Losses, norms and weights are those of one rank; replicated weights have equal bits; memory
// and traffic are as planned and as the closed forms say; the pipeline keeps as many micro-batches as its schedule
// says. Returns how many rows were run and compared in full. Collective over the test's world.
int run_rows(const std::vector<Row> &rows, const Overrides &numbers, const Tolerance &tolerance);

#endif
