#include "parallel/weights.h"

#include <math.h>
#include <stdlib.h>

#include "core/safetensors.h"
#include "parallel/logical_tensors.h"
#include "parallel/weights_impl.h"

enum { CHUNK = PLAIT_WEIGHTS_CHUNK };

static const char *const GPT2_PREFIX = "transformer.";

/* ---- the logical tensors of a model ---- */

static plait_shape file_shape(const plait_param *p)
{
    if (p->ndim == 1)
        return plait_shape_1d(p->file_rows);
    return p->transposed ? plait_shape_2d(p->file_cols, p->file_rows) : plait_shape_2d(p->file_rows, p->file_cols);
}

/* ---- the walk over what a rank has ---- */

bool plait_weights_are_copies(const plait_engine *e, int rank)
{
    return plait_engine_config(e)->zero.stage == 0 && plait_topology_at(plait_engine_topology(e), rank).d > 0;
}

plait_status plait_weights_walk(plait_engine *e, int owner, const plait_param_list *list, plait_weights_visit visit,
                                void *self)
{
    const plait_topology *topo = plait_engine_topology(e);
    plait_topology there = plait_topology_at(topo, owner);
    for (int unit = 0; unit < list->num_units; unit++) {
        const plait_unit *u = &list->units[unit];
        int64_t held, held_end;
        plait_zero_held_of(plait_engine_zero_options(e), there.d, topo->dp, u->numel, &held, &held_end);
        for (int i = u->first_param; i < u->first_param + u->num_params; i++) {
            const plait_param *p = &list->params[i];
            int64_t end = p->offset + plait_param_valid_numel(p);
            int64_t from = p->offset > held ? p->offset : held, to = end < held_end ? end : held_end;
            for (; p->counted && from < to; from += CHUNK)
                PLAIT_TRY(visit(self, owner, p, from, to - from < CHUNK ? to - from : CHUNK));
        }
    }
    return PLAIT_OK;
}

/* ---- saving ---- */

typedef struct save {
    plait_engine *e;
    plait_dtype acc;
    plait_logical_tensors tensors; /* rank 0 */
    plait_st_writer *writer;       /* rank 0 */
    void *buffer;                  /* CHUNK elements */
} save;

static plait_status open_writer(save *s, const char *path)
{
    PLAIT_TRY(plait_logical_tensors_init(&s->tensors, plait_engine_config(s->e), plait_engine_topology(s->e),
                                         plait_engine_model(s->e)));
    plait_st_spec *specs = calloc((size_t)s->tensors.count, sizeof *specs);
    if (!specs)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for the header of %s", path);
    for (int i = 0; i < s->tensors.count; i++)
        specs[i] = (plait_st_spec){s->tensors.params[i]->name, s->acc, file_shape(s->tensors.params[i])};
    plait_status st = plait_st_writer_create(path, specs, s->tensors.count, NULL, 0, &s->writer);
    free(specs);
    return st;
}

/* to[i] = from[i stride], elements of the accumulating types. */
static void copy_strided(void *to, const void *from, int64_t n, int64_t stride, plait_dtype dtype)
{
    if (stride == 1) {
        memcpy(to, from, (size_t)n * plait_dtype_size(dtype));
    } else if (dtype == PLAIT_FP64) {
        double *t = to;
        const double *f = from;
        for (int64_t i = 0; i < n; i++)
            t[i] = f[i * stride];
    } else {
        float *t = to;
        const float *f = from;
        for (int64_t i = 0; i < n; i++)
            t[i] = f[i * stride];
    }
}

/* Rank 0: n elements from element `begin` of a parameter's local block go to their places in the file, a run of the
 * file's elements at a time: the rest of a local row, or, in a transposed tensor, what the chunk has of a local column.
 */
static void scatter(save *s, const plait_param *p, int64_t begin, int64_t n)
{
    int tensor = plait_logical_tensors_find(&s->tensors, p->name);
    void *data = plait_st_writer_data(s->writer, tensor);
    int64_t valid = plait_param_valid_numel(p);
    n = n < valid - begin ? n : valid - begin;
    for (int64_t i = 0, run; i < n && (!p->transposed || i < p->cols); i += run) {
        int64_t left = p->cols - (begin + i) % p->cols, stride = p->transposed ? p->cols : 1;
        int64_t count = p->transposed ? (n - i + p->cols - 1) / p->cols : left < n - i ? left : n - i;
        run = p->transposed ? 1 : count;
        copy_strided(plait_at(data, s->acc, plait_param_file_index(p, begin + i)), plait_at(s->buffer, s->acc, i),
                     count, stride, s->acc);
    }
}

/* One chunk from its owner to the file: sent by the owner, received by rank 0. */
static plait_status move_chunk(void *self, int owner, const plait_param *p, int64_t from, int64_t n)
{
    save *s = self;
    const plait_groups *groups = plait_engine_groups(s->e);
    int rank = plait_comm_rank(groups->world);
    if (rank == owner)
        PLAIT_TRY(plait_zero_read(plait_engine_zero(s->e), p->unit, from, n, s->buffer));
    if (owner != 0 && (rank == owner || rank == 0)) {
        plait_comm_op op =
            plait_comm_make(rank == 0 ? PLAIT_COMM_RECV : PLAIT_COMM_SEND, s->buffer, s->buffer, n, s->acc);
        op.peer = rank == 0 ? owner : 0;
        PLAIT_TRY(plait_comm_run(groups->world, &op, NULL));
    }
    if (rank == 0)
        scatter(s, p, from - p->offset, n);
    return PLAIT_OK;
}

/* Every rank's part in turn: called by all, done by the rank that has it and by rank 0. */
static plait_status move_all(save *s)
{
    const plait_topology *topo = plait_engine_topology(s->e);
    for (int owner = 0; owner < topo->world; owner++) {
        plait_topology there = plait_topology_at(topo, owner);
        if (plait_weights_are_copies(s->e, owner) || (topo->rank != owner && topo->rank != 0))
            continue;
        plait_param_list list;
        PLAIT_TRY(plait_engine_model(s->e)->params(plait_engine_config(s->e), &there, &list));
        plait_status st = plait_weights_walk(s->e, owner, &list, move_chunk, s);
        plait_param_list_deinit(&list);
        PLAIT_TRY(st);
    }
    return PLAIT_OK;
}

plait_status plait_weights_save(plait_engine *e, const char *path)
{
    plait_status st = PLAIT_OK;
    plait_comm *world = plait_engine_groups(e)->world;
    bool writes = plait_comm_rank(world) == 0;
    const double timeout = plait_comm_timeout();
    save s = {.e = e, .acc = plait_dtype_acc(plait_engine_config(e)->precision.dtype)};
    s.buffer = malloc(CHUNK * sizeof(double));
    if (!s.buffer)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for a chunk of %d weights", CHUNK);
    /* The others wait for the one that writes, which takes as long as the disk does; it waits for nobody's disk. */
    if (!writes)
        plait_comm_set_timeout(INFINITY);
    PLAIT_TRY_TO(done, st, plait_comm_agree(world, writes ? open_writer(&s, path) : PLAIT_OK));
    PLAIT_TRY_TO(done, st, move_all(&s));
    plait_st_writer *writer = s.writer;
    s.writer = NULL;
    PLAIT_TRY_TO(done, st, plait_comm_agree(world, writes ? plait_st_writer_commit(writer) : PLAIT_OK));
done:
    plait_comm_set_timeout(timeout);
    plait_st_writer_abort(s.writer);
    plait_logical_tensors_deinit(&s.tensors);
    free(s.buffer);
    return st;
}

/* ---- loading ---- */

/* The file's tensor for a parameter, under its name or without GPT-2's prefix. */
static const plait_st_tensor *find(const plait_st_file *f, const char *name)
{
    const plait_st_tensor *t = plait_st_find(f, name);
    size_t prefix = strlen(GPT2_PREFIX);
    return t || strncmp(name, GPT2_PREFIX, prefix) != 0 ? t : plait_st_find(f, name + prefix);
}

static bool same_shape(const plait_st_tensor *t, plait_shape want)
{
    bool same = t->ndim == want.ndim;
    for (int i = 0; same && i < want.ndim; i++)
        same = t->shape[i] == want.dim[i];
    return same;
}

static void shape_text(char *buf, size_t size, int ndim, const int64_t *dim)
{
    size_t used = (size_t)snprintf(buf, size, "[");
    for (int i = 0; i < ndim && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%lld", i ? ", " : "", (long long)dim[i]);
    if (used < size)
        snprintf(buf + used, size - used, "]");
}

/* Buffers that old files carry and no model needs. */
static bool is_known_buffer(const char *name)
{
    static const char *const endings[] = {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"};
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t n = strlen(endings[i]);
        if (length >= n && strcmp(name + length - n, endings[i]) == 0)
            return true;
    }
    return false;
}

/* The file's token matrix, if the model's head is tied to it: its unit is used twice, or has a twin. */
static const plait_st_tensor *tied_tokens(const plait_st_file *f, const plait_logical_tensors *tensors)
{
    for (int i = 0; i < tensors->num_lists; i++) {
        const plait_param_list *list = &tensors->lists[i];
        for (int k = 0; k < list->num_units; k++)
            if (list->units[k].tied || list->units[k].uses > 1)
                return find(f, list->params[list->units[k].first_param].name);
    }
    return NULL;
}

/* A tied model's file may hold the head too, if it is the same. */
static plait_status check_tied_head(const plait_st_file *f, const plait_st_tensor *head, const plait_st_tensor *tokens)
{
    double a[256], b[256];
    if (!tokens || head->numel != tokens->numel)
        PLAIT_FAIL(IO, "%s: %s does not fit the token matrix that it is tied to", plait_st_path(f), head->name);
    for (int64_t i = 0; i < head->numel; i += 256) {
        int64_t n = head->numel - i < 256 ? head->numel - i : 256;
        PLAIT_TRY(plait_st_read(f, head, i, n, PLAIT_FP64, a));
        PLAIT_TRY(plait_st_read(f, tokens, i, n, PLAIT_FP64, b));
        if (memcmp(a, b, (size_t)n * sizeof *a) != 0)
            PLAIT_FAIL(IO, "%s: %s differs from %s, but model.tie_word_embeddings is true", plait_st_path(f),
                       head->name, tokens->name);
    }
    return PLAIT_OK;
}

/* All tensors of the model are there in the right shape, and nothing else is. */
static plait_status check_file(const plait_st_file *f, const plait_logical_tensors *tensors)
{
    for (int i = 0; i < tensors->count; i++) {
        const plait_param *p = tensors->params[i];
        const plait_st_tensor *t = find(f, p->name);
        if (!t)
            PLAIT_FAIL(IO, "%s: no tensor %s", plait_st_path(f), p->name);
        plait_shape want = file_shape(p);
        if (same_shape(t, want))
            continue;
        char is[96], should[96];
        shape_text(is, sizeof is, t->ndim, t->shape);
        shape_text(should, sizeof should, want.ndim, want.dim);
        PLAIT_FAIL(IO, "%s: %s has shape %s, the model needs %s", plait_st_path(f), t->name, is, should);
    }
    for (int64_t i = 0; i < plait_st_count(f); i++) {
        const plait_st_tensor *t = plait_st_at(f, i);
        char prefixed[PLAIT_NAME_MAX];
        snprintf(prefixed, sizeof prefixed, "%s%s", GPT2_PREFIX, t->name);
        if (plait_logical_tensors_find(tensors, t->name) >= 0 || plait_logical_tensors_find(tensors, prefixed) >= 0 ||
            is_known_buffer(t->name))
            continue;
        if (strcmp(t->name, "lm_head.weight") != 0)
            PLAIT_FAIL(IO, "%s: %s is no tensor of this model", plait_st_path(f), t->name);
        PLAIT_TRY(check_tied_head(f, t, tied_tokens(f, tensors)));
    }
    return PLAIT_OK;
}

/* A file, and local rows of a transposed parameter that were read ahead: the file has them as columns, so that single
 * elements would be read in the order in which they are asked for. */
typedef struct weight_source {
    const plait_st_file *file;
    const plait_param *param; /* what `block` is of; NULL: nothing */
    int64_t row, col, rows, cols;
    double *block; /* (rows, cols), at most BLOCK elements */
} weight_source;
enum { BLOCK = 1 << 20, STRIP = 4096, FIRST_ROWS = 64 };

/* Local rows from `row` on, or, if not even two have room, a part of a single one from `col` on. The first block of a
 * parameter is small, each further one twice as large: a rank may want few rows only, its shard's. */
static plait_status read_block(weight_source *s, const plait_st_tensor *t, const plait_param *p, int64_t row,
                               int64_t col)
{
    double strip[STRIP]; /* a part of a row of the file */
    int64_t room = BLOCK / p->cols < STRIP ? BLOCK / p->cols : STRIP, left = p->valid_rows - row;
    int64_t rows = s->param == p && row == s->row + s->rows ? 2 * s->rows : FIRST_ROWS;
    rows = room < 1 ? 1 : rows < room ? rows : room;
    *s = (weight_source){s->file, p, row, rows > 1 ? 0 : col, rows < left ? rows : left, 0, s->block};
    left = p->cols - s->col;
    s->cols = left < BLOCK ? left : BLOCK;
    for (int64_t c = 0; c < s->cols; c++) {
        int64_t at = plait_param_file_index(p, s->row * p->cols + s->col + c);
        PLAIT_TRY(plait_st_read(s->file, t, at, s->rows, PLAIT_FP64, strip));
        for (int64_t r = 0; r < s->rows; r++)
            s->block[r * s->cols + c] = strip[r];
    }
    return PLAIT_OK;
}

/* The next at most n elements from `at` on of a transposed parameter. */
static plait_status transposed_run(weight_source *s, const plait_st_tensor *t, const plait_param *p, int64_t at,
                                   int64_t n, double *out, int64_t *run)
{
    int64_t row = at / p->cols, col = at % p->cols;
    if (s->param != p || row < s->row || row >= s->row + s->rows || col < s->col || col >= s->col + s->cols)
        PLAIT_TRY(read_block(s, t, p, row, col));
    int64_t left = s->col + s->cols - col;
    *run = left < n ? left : n;
    memcpy(out, s->block + (row - s->row) * s->cols + (col - s->col), (size_t)*run * sizeof *out);
    return PLAIT_OK;
}

/* plait_value_source: elements of a local block from the file, in runs that are contiguous there. */
static plait_status file_values(void *self, const plait_param *p, int64_t begin, int64_t n, double *out)
{
    weight_source *s = self;
    const plait_st_tensor *t = find(s->file, p->name);
    int64_t valid = plait_param_valid_numel(p);
    for (int64_t i = 0, run; i < n; i += run) {
        int64_t at = begin + i;
        if (at >= valid) {
            out[i] = 0.0;
            run = 1;
            continue;
        }
        if (p->transposed) {
            PLAIT_TRY(transposed_run(s, t, p, at, n - i, out + i, &run));
            continue;
        }
        run = p->cols == p->file_cols ? valid - at : p->cols - at % p->cols; /* to the end of the local row */
        run = run < n - i ? run : n - i;
        PLAIT_TRY(plait_st_read(s->file, t, plait_param_file_index(p, at), run, PLAIT_FP64, out + i));
    }
    return PLAIT_OK;
}

static plait_status fill_from(plait_engine *e, const plait_st_file *f)
{
    weight_source s = {.file = f, .block = malloc(BLOCK * sizeof *s.block)};
    if (!s.block)
        PLAIT_FAIL(OUT_OF_MEMORY, "no memory for %d weights of %s", BLOCK, plait_st_path(f));
    plait_status st = plait_zero_fill(plait_engine_zero(e), file_values, &s);
    free(s.block);
    return st;
}

/* Ranks on other machines have files of their own: an older copy would give a model that is part this, part that. */
static plait_status compare_file(plait_comm *world, const plait_st_file *f)
{
    uint64_t mine = 0;
    plait_status st = plait_st_hash(f, &mine);
    uint64_t root = mine;
    PLAIT_TRY(plait_comm_broadcast_bytes(world, &root, sizeof root, 0));
    PLAIT_TRY(st);
    if (root != mine)
        PLAIT_FAIL(IO, "%s has other weights here than on rank 0", plait_st_path(f));
    return PLAIT_OK;
}

static plait_status open_checked(const plait_engine *e, const char *path, plait_st_file **out)
{
    plait_logical_tensors tensors = {0};
    PLAIT_TRY(plait_st_open(path, out));
    plait_status st =
        plait_logical_tensors_init(&tensors, plait_engine_config(e), plait_engine_topology(e), plait_engine_model(e));
    if (st == PLAIT_OK)
        st = check_file(*out, &tensors);
    plait_logical_tensors_deinit(&tensors);
    return st;
}

plait_status plait_weights_load(plait_engine *e, const char *path)
{
    plait_status st = PLAIT_OK;
    plait_comm *world = plait_engine_groups(e)->world;
    plait_st_file *f = NULL;
    PLAIT_TRY_TO(done, st, plait_comm_agree(world, open_checked(e, path, &f)));
    PLAIT_TRY_TO(done, st, plait_comm_agree(world, compare_file(world, f)));
    PLAIT_TRY_TO(done, st, plait_comm_agree(world, fill_from(e, f)));
done:
    plait_st_close(f);
    return st;
}
