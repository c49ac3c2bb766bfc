/* parallel/machine.h: how long operations and messages take on a machine, from rates that were measured there (plait
 * bench) or taken from data sheets.
 *
 * Rates lie on grids of shapes. Between the points of a grid the logarithm of the rate is linear in the logarithm of
 * each axis; outside it the rate is that of the border. A machine is a plain record: launcher/machine_file reads and
 * writes it as YAML.
 */
#ifndef PLAIT_PARALLEL_MACHINE_H
#define PLAIT_PARALLEL_MACHINE_H

#include "kernels/plan/plan.h"
#include "parallel/comm.h"

PLAIT_BEGIN_DECLS

enum { PLAIT_RATE_AXES = 3 };

/* Rates of one operation. Which table serves a call: its operation, type, transposes, and what runs beside it. */
typedef struct plait_rate_table {
    plait_op op; /* PLAIT_OPS: every operation that is bounded by memory and has no table of its own */
    plait_dtype dtype;
    bool trans_a, trans_b; /* gemm */
    int threads;           /* of the rank; 0: any */
    int ranks;             /* of the node that compute at the same time; 0: any */
    /* What was taken off each time before it became a rate, and so comes on top again; 0: the machine's. */
    double launch_seconds;
    /* Axes: gemm m, n, k; attention heads (of all samples), seq, head_dim; others bytes (read and written). Ascending,
     * at least one point; unused axes have none. */
    int num_axes, num[PLAIT_RATE_AXES];
    double *at[PLAIT_RATE_AXES];
    double *rate; /* [num[0] num[1] num[2]], the last axis fastest: FLOP/s where a call has flops, else bytes/s */
} plait_rate_table;

/* Seconds of one operation among `size` ranks that start together. */
typedef struct plait_link_table {
    plait_comm_kind kind; /* never PLAIT_COMM_RECV: a message is its send */
    int size;             /* ranks of the group */
    int ranks;            /* of the node, all of which communicate at the same time; 0: any */
    bool spans;           /* the group is on several nodes */
    plait_dtype dtype;
    int num;
    double *bytes, *seconds; /* [num], ascending; bytes as plait_traffic counts them; 0 bytes: the point of latency */
} plait_link_table;

/* A link that is known by its data sheet: latency of a message and bytes a second of each rank, in each direction. */
typedef struct plait_link {
    double latency, bandwidth;
} plait_link;

typedef struct plait_machine {
    char name[128];
    char source[128];      /* "measured 2026-11-30", "data sheet" */
    int ranks_per_node;    /* data sheets: ranks of a group that are on other nodes talk over `network`; 0: one node */
    bool overlap;          /* whether communication goes on while a rank computes */
    double launch_seconds; /* of the host, for a call of an operation, where its table does not say */
    double step_seconds;   /* of the host, for a step: samples, metrics */
    double peak[PLAIT_DTYPES]; /* FLOP/s of a rank by its data sheet; 0: not known */
    int num_rates, num_links;
    plait_rate_table *rates;
    plait_link_table *links;
    plait_link node, network; /* where no table of links serves: ring algorithms; bandwidth 0: unknown */
} plait_machine;

void plait_machine_deinit(plait_machine *m);

/* Axes of a table of `op` and their names ("m", "n", "k"; "heads", "seq", "head_dim"; "bytes"); returns their number.
 */
int plait_rate_axes(plait_op op, const char *names[PLAIT_RATE_AXES]);
/* Whether arithmetic bounds the operation: its rates are FLOP/s. */
bool plait_rate_is_flops(plait_op op);
/* Rates of the table: points of all its axes. */
int plait_rate_points(const plait_rate_table *t);
/* Puts a copy of `t` into the machine, in the place of the table that says the same of the same, if there is one. */
PLAIT_MUST_USE plait_status plait_machine_put_rates(plait_machine *m, const plait_rate_table *t);
PLAIT_MUST_USE plait_status plait_machine_put_links(plait_machine *m, const plait_link_table *t);
/* The table that says the same of the same; NULL: none. */
const plait_rate_table *plait_machine_find_rates(const plait_machine *m, const plait_rate_table *like);
const plait_link_table *plait_machine_find_links(const plait_machine *m, const plait_link_table *like);

/* What a rank of a run is, for all of the following. */
typedef struct plait_machine_use {
    int threads; /* of each rank */
    int ranks;   /* of a node */
} plait_machine_use;

/* Seconds of a call, with what the host takes for it, which is all of a call without work. The table whose threads and
 * ranks are the run's, else one for any, else the nearest in ranks x threads; a product takes one with other transposes
 * rather than none. PLAIT_UNSUPPORTED, with operation and type, where the machine has nothing that serves. */
PLAIT_MUST_USE plait_status plait_machine_op_seconds(const plait_machine *m, const plait_machine_use *use,
                                                     const plait_op_record *r, double *seconds);
/* Seconds of a communication of a group of `size` ranks on `nodes` nodes once all have started it. Between nodes a
 * ring has as many lanes as the group has ranks on a node, each with the network of its rank, up to the node's link.
 * PLAIT_UNSUPPORTED, with kind and size, where nothing serves. Groups of one and 0 bytes: 0, but a barrier has no
 * bytes. A table of another type serves where there is none of this one. */
PLAIT_MUST_USE plait_status plait_machine_comm_seconds(const plait_machine *m, const plait_machine_use *use,
                                                       plait_comm_kind kind, int size, int nodes, plait_dtype dtype,
                                                       double bytes, double *seconds);
/* The largest rate in FLOP/s of that type, for whatever threads and ranks, and its table; 0: there is none. */
double plait_machine_reached(const plait_machine *m, plait_dtype dtype, const plait_rate_table **best);
/* FLOP/s of a rank at its best, for the share of them that a step uses: the data sheet's, else the largest rate of the
 * products that serve; 0: not known. */
double plait_machine_peak(const plait_machine *m, const plait_machine_use *use, plait_dtype dtype);

PLAIT_END_DECLS
#endif
