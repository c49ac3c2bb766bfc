#include "parallel/param.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/rng.h"

void plait_param_list_deinit(plait_param_list *list)
{
    free(list->params);
    free(list->units);
    *list = (plait_param_list){0};
}

/* Makes room for one more element of `size` bytes. */
static plait_status grow(void **array, int count, int *cap, size_t size)
{
    if (count < *cap)
        return PLAIT_OK;
    int wanted = *cap ? 2 * *cap : 32;
    void *bigger = realloc(*array, (size_t)wanted * size);
    if (!bigger)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for a list of %d parameters", wanted);
    *array = bigger;
    *cap = wanted;
    return PLAIT_OK;
}

plait_status plait_param_list_unit(plait_param_list *list, int *out, const char *name, ...)
{
    void *units = list->units;
    PLAIT_TRY(grow(&units, list->num_units, &list->cap_units, sizeof *list->units));
    list->units = units;
    plait_unit *u = &list->units[list->num_units];
    *u = (plait_unit){.first_param = list->num_params, .uses = 1};
    va_list args;
    va_start(args, name);
    vsnprintf(u->name, sizeof u->name, name, args);
    va_end(args);
    *out = list->num_units++;
    return PLAIT_OK;
}

plait_status plait_param_list_add(plait_param_list *list, const plait_param *p)
{
    void *params = list->params;
    PLAIT_TRY(grow(&params, list->num_params, &list->cap_params, sizeof *list->params));
    list->params = params;
    plait_unit *u = &list->units[list->num_units - 1];
    plait_param *added = &list->params[list->num_params++];
    *added = *p;
    added->unit = list->num_units - 1;
    added->offset = u->numel;
    u->numel += plait_param_numel(p);
    u->num_params++;
    return PLAIT_OK;
}

int64_t plait_param_numel(const plait_param *p)
{
    return p->rows * p->cols;
}

int64_t plait_param_valid_numel(const plait_param *p)
{
    return p->valid_rows * p->cols;
}

int64_t plait_param_list_counted(const plait_param_list *list)
{
    int64_t n = 0;
    for (int i = 0; i < list->num_params; i++)
        n += list->params[i].counted ? plait_param_valid_numel(&list->params[i]) : 0;
    return n;
}

int64_t plait_param_list_numel(const plait_param_list *list)
{
    int64_t n = 0;
    for (int i = 0; i < list->num_units; i++)
        n += list->units[i].numel;
    return n;
}

int64_t plait_param_file_index(const plait_param *p, int64_t i)
{
    int64_t row = p->row0 + i / p->cols, col = p->col0 + i % p->cols;
    return p->transposed ? col * p->file_rows + row : row * p->file_cols + col;
}

double plait_param_initial(const plait_param *p, uint64_t seed, int64_t i)
{
    if (i >= plait_param_valid_numel(p) || p->init == PLAIT_INIT_ZERO)
        return 0.0;
    if (p->init == PLAIT_INIT_ONE)
        return 1.0;
    plait_rng r = plait_rng_make(seed, PLAIT_RNG_INIT, p->rng_layer, 0, p->rng_tensor);
    int64_t row = p->row0 + i / p->cols, col = p->col0 + i % p->cols;
    return p->init_std * plait_rng_normal(&r, (uint64_t)(row * p->file_cols + col));
}

int64_t plait_shard_begin(int64_t n, int dp, int r)
{
    /* n r overflows for no real model, but the quotient form never does. */
    return r == dp ? n : (n / dp * r + n % dp * r / dp) / 8 * 8;
}

void plait_shard_offsets(int64_t n, int dp, int64_t *offsets)
{
    for (int r = 0; r <= dp; r++)
        offsets[r] = plait_shard_begin(n, dp, r);
}
