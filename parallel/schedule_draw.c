#include "parallel/schedule_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Columns of a forward and of a backward. */
enum { FWD_COLUMNS = 1, BWD_COLUMNS = 2, MIN_WIDTH = 20 };

static void draw_stage(const plait_schedule *s, const double *begin, char *line, int columns)
{
    memset(line, '.', (size_t)columns);
    for (int i = 0; i < s->num_acts; i++) {
        plait_act a = s->acts[i];
        if (plait_act_role(a) != PLAIT_ROLE_COMPUTE)
            continue;
        bool forward = a.kind == PLAIT_ACT_FWD;
        char mark = (char)(forward ? '0' + a.micro % 10 : 'a' + a.micro % 26);
        memset(line + lround(begin[i]), mark, forward ? FWD_COLUMNS : BWD_COLUMNS);
    }
}

static void print_line(FILE *out, int stage, const char *line, int columns, int max_width)
{
    enum { LABEL = 10 }; /* "stage   0 " */
    int room = max_width - LABEL;
    fprintf(out, "stage %3d ", stage);
    if (columns <= room) {
        fprintf(out, "%.*s\n", columns, line);
        return;
    }
    int head = (room - 3 + 1) / 2, tail = room - 3 - head;
    fprintf(out, "%.*s ~ %.*s\n", head, line, tail, line + columns - tail);
}

static plait_status draw(const plait_schedule *schedules, int stages, FILE *out, int max_width, double **begin)
{
    plait_simulation sim = {.forward_time = FWD_COLUMNS, .backward_time = BWD_COLUMNS};
    for (int stage = 0; stage < stages; stage++) {
        begin[stage] = malloc(((size_t)schedules[stage].num_acts + 1) * sizeof **begin);
        if (!begin[stage])
            PLAIT_FAIL(OUT_OF_MEMORY, "no memory to draw a pipeline schedule of %d actions", schedules[stage].num_acts);
    }
    PLAIT_TRY(plait_schedule_simulate_times(schedules, stages, &sim, begin));
    int columns = (int)lround(sim.makespan);
    char *line = malloc((size_t)columns + 1);
    if (!line)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory to draw %d columns", columns);
    for (int stage = 0; stage < stages; stage++) {
        draw_stage(&schedules[stage], begin[stage], line, columns);
        print_line(out, stage, line, columns, max_width < MIN_WIDTH ? MIN_WIDTH : max_width);
    }
    free(line);
    return PLAIT_OK;
}

plait_status plait_schedule_draw(const plait_schedule *schedules, int stages, FILE *out, int max_width)
{
    if (stages < 1 || stages > PLAIT_MAX_STAGES)
        PLAIT_FAIL(INTERNAL, "%d pipeline stages cannot be drawn: between 1 and %d", stages, PLAIT_MAX_STAGES);
    double **begin = calloc((size_t)stages, sizeof *begin);
    if (!begin)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory to draw %d pipeline stages", stages);
    plait_status st = draw(schedules, stages, out, max_width, begin);
    for (int stage = 0; stage < stages; stage++)
        free(begin[stage]);
    free(begin);
    return st;
}
