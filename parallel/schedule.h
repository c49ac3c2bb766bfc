/* parallel/schedule.h: a pipeline schedule is a list of actions, what one pipeline rank does in one step.
 *
 * Generators make the list, the simulator proves it, `pipeline.c` walks it, banner and plan draw it. A SEND or RECV
 * posts; the action that first needs the buffer waits. A pipeline group has two communicators (activations, gradients),
 * each in order. The receive for the next action of a kind is posted together with the send of this one; the first
 * receive of a kind stands alone.
 *
 * A rank holds `chunks` model chunks; virtual stage = chunk * stages + stage. Chunk c's output goes to the next stage,
 * from the last stage to chunk c + 1 of the first.
 */
#ifndef PLAIT_PARALLEL_SCHEDULE_H
#define PLAIT_PARALLEL_SCHEDULE_H

#include "core/config.h"

PLAIT_BEGIN_DECLS

typedef enum plait_act_kind {
    PLAIT_ACT_RECV_X,
    PLAIT_ACT_FWD,
    PLAIT_ACT_SEND_Y,
    PLAIT_ACT_RECV_DY,
    PLAIT_ACT_BWD,
    PLAIT_ACT_SEND_DX
} plait_act_kind;

typedef struct plait_act {
    plait_act_kind kind;
    int16_t chunk;
    int32_t micro;
} plait_act;

/* What lives from one action of a micro-batch to another. */
typedef enum plait_segment {
    PLAIT_SEG_X,    /* received input: RECV_X to BWD (forward-only: to FWD) */
    PLAIT_SEG_BODY, /* saved for backward: FWD to BWD (forward-only: FWD alone) */
    PLAIT_SEG_DY,   /* received gradient: RECV_DY to BWD */
    PLAIT_SEGMENTS
} plait_segment;

/* Outputs (y, dx) of a rank alternate between this many buffers each: a FWD or BWD that produces one waits for the send
 * that used the buffer before. */
#define PLAIT_SEND_BUFFERS 2

typedef struct plait_schedule {
    plait_act *acts;
    int num_acts;
    int stage, stages, chunks, micros;
    bool forward_only;
    int max_in_flight; /* largest number of (chunk, micro) between FWD and BWD, both included; forward-only: 1 */
} plait_schedule;

/* kind: GPIPE, 1F1B or INTERLEAVED (the only one with chunks > 1). micros >= 1, any number: fewer than stages, no
 * multiple of stages (the list for stages * ceil(micros / stages) is made and actions of micro-batches >= micros are
 * deleted). 1F1B: Narayanan et al. 2021 (SC21), section 2.2; interleaved: section 2.2.2. Owner: plait_schedule_deinit.
 */
PLAIT_MUST_USE plait_status plait_schedule_init(plait_schedule *s, plait_pipe_schedule kind, int stage, int stages,
                                                int chunks, int micros);
/* All forwards, in the order of GPipe's fill; for evaluation and sampling. Also with chunks > 1. */
PLAIT_MUST_USE plait_status plait_schedule_init_forward(plait_schedule *s, int stage, int stages, int chunks,
                                                        int micros);
void plait_schedule_deinit(plait_schedule *s);

/* "rx0 F0 sy0 ry0 B0 sx0"; with several chunks "F1.0" is chunk 1 of micro-batch 0. Into buf, cut at size. */
void plait_schedule_text(const plait_schedule *s, char *buf, size_t size);

/* Slots for the segments of one kind: slot_of[chunk * micros + micro] and the number of slots; two that live at once
 * never share one. Greedy over the list, which is optimal for intervals. slot_of: caller's, chunks * micros ints. A
 * segment that does not exist for a (chunk, micro) (X on virtual stage 0, DY on the last) gets -1. */
int plait_schedule_colour(const plait_schedule *s, plait_segment segment, int *slot_of);

#define PLAIT_SLOT_ALIGN 64 /* offsets and sizes in a pool are multiples of this many bytes */
#define PLAIT_NO_OFFSET  SIZE_MAX
/* The same for chunks of different sizes: byte offsets into one pool, first fit by first use. offset_of as slot_of; a
 * segment that does not exist gets PLAIT_NO_OFFSET. bytes_of_chunk: [chunks], rounded up to PLAIT_SLOT_ALIGN. *pool:
 * the pool's bytes, at most slots * the largest size; with equal sizes that is the smallest possible. */
PLAIT_MUST_USE plait_status plait_schedule_pack(const plait_schedule *s, plait_segment segment,
                                                const size_t *bytes_of_chunk, size_t *offset_of, size_t *pool);

/* Proof by simulation of all stages of one pipeline under rendezvous semantics: a send completes when its receive has
 * been posted, messages match per (communicator, source, destination) in posting order, a group completes when all its
 * messages have. Messages take no time. Waits happen where pipeline.c waits: a FWD or BWD for the group of its receive
 * and for the group of the send that used its output buffer before. Also checks: every (chunk, micro) has one forward
 * and one backward on every stage, forward before backward, data from the right predecessor, nothing left in flight at
 * the end.
 */
typedef struct plait_simulation {
    double forward_time, backward_time; /* in: of one chunk, that is of one virtual stage */
    bool in_order;                      /* in: a group begins only when the one before on the same communicator and
                                           rank is complete (queues of a GPU); a stricter proof */
    double makespan;                    /* out */
    double ideal;                       /* out: busy time of the busiest stage */
    int in_flight[PLAIT_MAX_STAGES];    /* out: largest number per stage */
} plait_simulation;
/* schedules[stages], schedules[i] that of stage i. PLAIT_INTERNAL with stage, action and reason when a check fails or
 * nothing can move. */
PLAIT_MUST_USE plait_status plait_schedule_simulate(const plait_schedule *schedules, int stages, plait_simulation *sim);

/* Peak in-flight count of stage i as the literature has it: GPipe m; 1F1B min(m, p - i); interleaved
 * min(v m, 2 (p - i - 1) + (v - 1) p + 1), exact for m a multiple of p and an upper bound otherwise. */
int plait_schedule_expected_in_flight(plait_pipe_schedule kind, int stage, int stages, int chunks, int micros);

/* A drawing for the banner, of the simulated step with backward twice as long as forward: one line a stage, a column
 * the time of a forward, forwards as the last digit of the micro-batch, backwards as letters (micro-batch modulo 26),
 * idle as dots. A line longer than max_width (at least 20) keeps its beginning and its end around " ~ ". */
PLAIT_MUST_USE plait_status plait_schedule_draw(const plait_schedule *schedules, int stages, FILE *out, int max_width);

PLAIT_END_DECLS
#endif
