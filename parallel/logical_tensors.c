#include "parallel/logical_tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void plait_logical_tensors_deinit(plait_logical_tensors *l)
{
    for (int i = 0; i < l->num_lists; i++)
        plait_param_list_deinit(&l->lists[i]);
    free(l->lists);
    free(l->params);
    *l = (plait_logical_tensors){0};
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const plait_param *const *)a)->name, (*(const plait_param *const *)b)->name);
}

plait_status plait_logical_tensors_init(plait_logical_tensors *l, const plait_config *cfg, const plait_topology *topo,
                                        const plait_model_ops *model)
{
    plait_status st = PLAIT_OK;
    int total = 0;
    *l = (plait_logical_tensors){0};
    l->lists = calloc((size_t)topo->pp * (size_t)topo->tp, sizeof *l->lists);
    if (!l->lists)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the list of tensors");
    for (int i = 0; i < topo->pp * topo->tp; i++) {
        plait_topology there = plait_topology_at(topo, plait_topology_rank_of(topo, 0, i / topo->tp, i % topo->tp));
        PLAIT_TRY_TO(fail, st, model->params(cfg, &there, &l->lists[i]));
        total += l->lists[l->num_lists++].num_params;
    }
    l->params = calloc((size_t)total + 1, sizeof *l->params);
    if (!l->params)
        PLAIT_FAIL_TO(fail, st, OUT_OF_MEMORY, "no memory for the list of tensors");
    for (int i = 0; i < l->num_lists; i++)
        for (int k = 0; k < l->lists[i].num_params; k++)
            if (l->lists[i].params[k].counted)
                l->params[l->count++] = &l->lists[i].params[k];
    qsort(l->params, (size_t)l->count, sizeof *l->params, by_name);
    int unique = 0;
    for (int i = 0; i < l->count; i++)
        if (i == 0 || by_name(&l->params[i - 1], &l->params[i]) != 0)
            l->params[unique++] = l->params[i];
    l->count = unique;
    return PLAIT_OK;
fail:
    plait_logical_tensors_deinit(l);
    return st;
}

int plait_logical_tensors_find(const plait_logical_tensors *l, const char *name)
{
    plait_param key;
    snprintf(key.name, sizeof key.name, "%s", name);
    const plait_param *k = &key;
    const plait_param **found = bsearch(&k, l->params, (size_t)l->count, sizeof *l->params, by_name);
    return found ? (int)(found - l->params) : -1;
}
