/* parallel/step_trace.h: what one rank does in one training step, as a list, without doing it.
 *
 * The step of a dry engine (parallel/engine.h) is run once under listeners. So the list is not a model of the code: it
 * is the code, with every gather, reduction and message where a run has it. Calls of operations between two events of
 * communication are one entry, whose seconds a machine gives (parallel/machine.h).
 */
#ifndef PLAIT_PARALLEL_STEP_TRACE_H
#define PLAIT_PARALLEL_STEP_TRACE_H

#include "parallel/engine.h"
#include "parallel/machine.h"

PLAIT_BEGIN_DECLS

/* The communicators of a rank, each a queue of its own. */
typedef enum plait_channel {
    PLAIT_CHANNEL_WORLD,
    PLAIT_CHANNEL_TENSOR,
    PLAIT_CHANNEL_DATA,
    PLAIT_CHANNEL_ACTIVATIONS, /* of the pipeline */
    PLAIT_CHANNEL_GRADIENTS,
    PLAIT_CHANNEL_EMBEDDING,
    PLAIT_CHANNEL_KV,
    PLAIT_CHANNELS
} plait_channel;

plait_group plait_channel_group(plait_channel channel);

typedef enum plait_trace_kind {
    PLAIT_TRACE_COMPUTE, /* seconds */
    PLAIT_TRACE_START,   /* ops [first_op, first_op + num_ops) as request number `request` */
    PLAIT_TRACE_WAIT,    /* for that request */
    PLAIT_TRACE_BEGIN,   /* a forward or backward of the pipeline: what follows belongs to it ... */
    PLAIT_TRACE_END      /* ... up to here */
} plait_trace_kind;

typedef struct plait_trace_event {
    plait_trace_kind kind;
    union {
        double seconds;
        struct {
            int request, first_op, num_ops;
        } comm;
        struct {
            int16_t chunk;
            bool backward;
            int micro;
        } act;
    };
} plait_trace_event;

typedef struct plait_trace_op {
    plait_channel channel;
    plait_comm_kind kind;
    int peer;       /* messages: the stage at the other end */
    double seconds; /* once all have started it */
} plait_trace_op;

/* All calls of one operation in the step. */
typedef struct plait_op_totals {
    int64_t calls;
    double flops, bytes, seconds;
} plait_op_totals;

typedef struct plait_step_trace {
    plait_topology topo;
    int num_events, cap_events, num_ops, cap_ops, num_requests;
    plait_trace_event *events;
    plait_trace_op *ops;
    plait_op_totals totals[PLAIT_OPS];
    plait_traffic traffic[PLAIT_GROUPS]; /* as plait_engine_traffic */
} plait_step_trace;

/* Runs a step of a dry engine with the number of micro-batches of a full batch. machine: NULL, then there are totals
 * and traffic, and neither seconds nor events. PLAIT_UNSUPPORTED where the machine does not know an operation. Owner:
 * plait_step_trace_deinit, also after a failure. */
PLAIT_MUST_USE plait_status plait_step_trace_init(plait_step_trace *t, plait_engine *dry, const plait_machine *machine,
                                                  const plait_machine_use *use);
void plait_step_trace_deinit(plait_step_trace *t);

PLAIT_END_DECLS
#endif
