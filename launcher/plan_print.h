/* launcher/plan_print.h: a plan of all ranks as text or as JSON. docs/plan.md describes both. */
#ifndef PLAIT_LAUNCHER_PLAN_PRINT_H
#define PLAIT_LAUNCHER_PLAN_PRINT_H

#include <stdio.h>

#include "launcher/planned.h"

PLAIT_BEGIN_DECLS

/* Bytes of each class of ranks by category; when the shared ones are at their highest; what a step sends; with a
 * machine how long it takes and where the time goes; whether it fits. */
void plait_plan_print(const plait_planned *p, FILE *out);
/* Parts of it: degrees, type and micro-batches; bytes, a line a class (host_bytes: of each rank, below 0: not known);
 * whether the largest class fits; when it holds most. */
void plait_plan_print_topology(const plait_planned *p, FILE *out);
void plait_plan_print_memory(const plait_rank_plan *p, int64_t host_bytes, FILE *out);
void plait_plan_print_verdict(const plait_planned *p, FILE *out);
void plait_plan_print_peaks(const plait_planned *p, FILE *out);
/* Host bytes beside the tensors of a GPU, on the rank that has most of them; 0 where tensors are on the host. */
int64_t plait_plan_beside_gpu(const plait_rank_plan *p);

/* One object on one line, "version" 1. */
void plait_plan_print_json(const plait_planned *p, FILE *out);

PLAIT_END_DECLS
#endif
