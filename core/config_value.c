#include "core/config_impl.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a sentence about a wrong value goes. */
typedef struct reason {
    char *text;
    size_t size;
} reason;

static bool no(reason why, const char *format, ...) PLAIT_PRINTF(2, 3);

static bool no(reason why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why.text, why.size, format, args);
    va_end(args);
    return false;
}

/* ---- numbers, YAML 1.2 core schema ---- */

/* [-+]? ( digits [. digits?] | . digits ) ( [eE] [-+]? digits )? */
static bool is_decimal(const char *s)
{
    if (*s == '-' || *s == '+')
        s++;
    bool digits = false;
    for (; isdigit((unsigned char)*s); s++)
        digits = true;
    if (*s == '.')
        for (s++; isdigit((unsigned char)*s); s++)
            digits = true;
    if (!digits)
        return false;
    if (*s == 'e' || *s == 'E') {
        s++;
        if (*s == '-' || *s == '+')
            s++;
        if (!isdigit((unsigned char)*s))
            return false;
        while (isdigit((unsigned char)*s))
            s++;
    }
    return *s == '\0';
}

static bool has_nonzero_digit(const char *s)
{
    for (; *s && *s != 'e' && *s != 'E'; s++)
        if (*s >= '1' && *s <= '9')
            return true;
    return false;
}

static bool parse_double(const char *s, double *out, reason why)
{
    if (!is_decimal(s))
        return no(why, "\"%.40s\" is not a finite number", s);
    *out = strtod(s, NULL);
    if (isinf(*out))
        return no(why, "%.40s is too large for a number of 64 bits", s);
    if (*out == 0.0 && has_nonzero_digit(s))
        return no(why, "%.40s is too small for a number of 64 bits", s);
    return true;
}

static int digit_of(char c)
{
    return isdigit((unsigned char)c) ? c - '0' : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10 : 99;
}

/* Decimal, 0x, 0o, and decimal fractions with a whole value (4.0, 1e3). */
static bool parse_int(const char *s, int64_t *out, reason why)
{
    const char *p = s;
    bool negative = *p == '-';
    if (*p == '-' || *p == '+')
        p++;
    int base = p[0] == '0' && p[1] == 'x' ? 16 : p[0] == '0' && p[1] == 'o' ? 8 : 10;
    if (base != 10)
        p += 2;

    const char *q = p;
    uint64_t limit = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX, value = 0;
    for (; digit_of(*q) < base; q++) {
        uint64_t digit = (uint64_t)digit_of(*q);
        if (value > (limit - digit) / (uint64_t)base)
            return no(why, "%.40s does not fit into 64 bits", s);
        value = value * (uint64_t)base + digit;
    }
    if (q > p && *q == '\0') {
        if (base == 10 && p[0] == '0' && p[1])
            return no(why, "%.40s begins with 0, which some read as octal: write it without, or as 0o...", s);
        *out = negative ? -(int64_t)(value - (value > 0)) - (value > 0) : (int64_t)value;
        return true;
    }

    if (base != 10 || !is_decimal(s))
        return no(why, "\"%.40s\" is not a whole number", s);
    double d;
    if (!parse_double(s, &d, why))
        return false;
    if (d != floor(d))
        return no(why, "%.40s is not a whole number", s);
    if (fabs(d) > 9007199254740992.0)
        return no(why, "%.40s is not exact as a number with a fraction: write it without", s);
    *out = (int64_t)d;
    return true;
}

static const struct {
    const char *name;
    int shift;
} units[] = {{"EiB", 60}, {"PiB", 50}, {"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}};
enum { LARGEST_PRINTED = 40 };

static void bytes_text(int64_t v, char *out, size_t size)
{
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++)
        if (v != 0 && units[u].shift > 0 && units[u].shift <= LARGEST_PRINTED &&
            v % ((int64_t)1 << units[u].shift) == 0) {
            snprintf(out, size, "%lld%s", (long long)(v >> units[u].shift), units[u].name);
            return;
        }
    snprintf(out, size, "%lld", (long long)v);
}

/* Where the letters at the end begin; the end: there are none, or they are digits of 0x. */
static size_t find_unit(const char *s)
{
    const size_t all = strlen(s);
    size_t len = all;
    while (len > 0 && isalpha((unsigned char)s[len - 1]))
        len--;
    return s[0] == '0' && (s[1] == 'x' || s[1] == 'o') ? all : len;
}

static bool parse_bytes(const plait_key *k, const char *s, int64_t *out, reason why)
{
    char number[64], bound[32];
    size_t len = find_unit(s);
    if (len == 0 || s[len] == '\0') /* a word is no unit either */
        return parse_int(s, out, why);
    const char *unit = s + len;
    while (len > 0 && s[len - 1] == ' ')
        len--;
    if (len >= sizeof number)
        return no(why, "\"%.40s\" is not a size", s);
    memcpy(number, s, len);
    number[len] = '\0';
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        if (strcmp(unit, units[u].name) != 0)
            continue;
        double d;
        if (!parse_double(number, &d, why))
            return false;
        d = ldexp(d, units[u].shift);
        if (d != floor(d))
            return no(why, "%.40s is not a whole number of bytes", s);
        if (fabs(d) > 9007199254740992.0) {
            bytes_text(d > 0 ? k->hi : k->lo, bound, sizeof bound);
            return no(why, "%.40s is %s value %s", s, d > 0 ? "above the largest" : "below the smallest", bound);
        }
        *out = (int64_t)d;
        return true;
    }
    return no(why, "\"%.40s\" has an unknown unit: B, KiB, MiB, GiB, TiB, PiB or EiB", s);
}

void plait_double_text(double x, char *out, size_t size)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, size, "%.*g", digits, x);
        if (strtod(out, NULL) == x)
            return;
    }
}

/* ---- checks against the row ---- */

static bool in_int_bounds(const plait_key *k, int64_t v, reason why)
{
    if (v >= k->lo && v <= k->hi)
        return true;
    char lo[32], hi[32], at[32];
    if (k->type == PLAIT_KEY_BYTES) {
        bytes_text(k->lo, lo, sizeof lo);
        bytes_text(k->hi, hi, sizeof hi);
        bytes_text(v, at, sizeof at);
    } else {
        snprintf(lo, sizeof lo, "%lld", (long long)k->lo);
        snprintf(hi, sizeof hi, "%lld", (long long)k->hi);
        snprintf(at, sizeof at, "%lld", (long long)v);
    }
    return v < k->lo ? no(why, "%s is below the smallest value %s", at, lo)
                     : no(why, "%s is above the largest value %s", at, hi);
}

static bool in_double_bounds(const plait_key *k, double v, reason why)
{
    char lo[32], hi[32], at[32];
    plait_double_text(k->min, lo, sizeof lo);
    plait_double_text(k->max, hi, sizeof hi);
    plait_double_text(v, at, sizeof at);
    if (v < k->min)
        return no(why, "%s is below the smallest value %s", at, lo);
    if (v > k->max || (k->max_open && v == k->max))
        return no(why, "%s is not %s %s", at, k->max_open ? "below" : "at most", hi);
    return true;
}

/* The scalar's text; NULL, with the reason, for a list, a mapping or nothing. */
static const char *scalar(const plait_key *k, const plait_yaml_node *n, reason why)
{
    if (n->kind == PLAIT_YAML_SCALAR && !plait_yaml_is_null(n))
        return n->text;
    char want[512];
    plait_config_describe(k, want, sizeof want);
    no(why, "expected %s, found %s", want,
       n->kind == PLAIT_YAML_LIST  ? "a list"
       : n->kind == PLAIT_YAML_MAP ? "a mapping"
                                   : "null");
    return NULL;
}

static const plait_word *find_word(const plait_key *k, const char *s, reason why)
{
    for (const plait_word *w = k->words; w->name; w++)
        if (strcmp(w->name, s) == 0) {
            if (w->refusal) {
                no(why, "%s: %s", s, w->refusal);
                return NULL;
            }
            return w;
        }
    char want[512];
    plait_config_describe(k, want, sizeof want);
    no(why, "expected %s, found \"%.40s\"", want, s);
    return NULL;
}

/* Puts what is wrong with the text of a number behind what was expected. */
static bool number_error(const plait_key *k, reason why, const char *found)
{
    char want[512];
    plait_config_describe(k, want, sizeof want);
    return no(why, "expected %s: %s", want, found);
}

static bool int_item(const plait_key *k, const char *s, int64_t *out, reason why)
{
    char found[160];
    reason r = {found, sizeof found};
    bool ok = k->type == PLAIT_KEY_BYTES ? parse_bytes(k, s, out, r) : parse_int(s, out, r);
    return (ok && in_int_bounds(k, *out, r)) || number_error(k, why, found);
}

static bool double_item(const plait_key *k, const char *s, double *out, reason why)
{
    char found[160];
    reason r = {found, sizeof found};
    return (parse_double(s, out, r) && in_double_bounds(k, *out, r)) || number_error(k, why, found);
}

/* ---- lists ---- */

static bool list_of(const plait_key *k, const plait_yaml *doc, const plait_yaml_node *n, int max, reason why)
{
    char want[512];
    plait_config_describe(k, want, sizeof want);
    if (n->kind != PLAIT_YAML_LIST) {
        if (n->kind == PLAIT_YAML_SCALAR)
            return no(why, "expected %s, found \"%.40s\"", want, n->text);
        return no(why, "expected %s, found a mapping", want);
    }
    if (k->count > 0 ? n->count != k->count : n->count > max)
        return no(why, "expected %s, found a list of %d", want, n->count);
    for (int i = n->first; i >= 0; i = doc->nodes[i].next)
        if (doc->nodes[i].kind != PLAIT_YAML_SCALAR)
            return no(why, "expected %s, found a list inside the list", want);
    return true;
}

static bool parse_list(const plait_key *k, const plait_yaml *doc, const plait_yaml_node *n, void *dst, reason why)
{
    if (!list_of(k, doc, n, PLAIT_MAX_STAGES, why))
        return false;
    int64_t at = 0;
    unsigned set = 0;
    int64_t *items = (int64_t *)dst + (k->type == PLAIT_KEY_LAYOUT);
    for (int i = n->first; i >= 0; i = doc->nodes[i].next, at++) {
        const char *s = doc->nodes[i].text;
        if (k->type == PLAIT_KEY_SET) {
            const plait_word *w = find_word(k, s, why);
            if (!w)
                return false;
            set |= (unsigned)w->value;
        } else if (k->type == PLAIT_KEY_DOUBLES) {
            if (!double_item(k, s, (double *)dst + at, why))
                return false;
        } else if (!int_item(k, s, items + at, why)) {
            return false;
        }
    }
    if (k->type == PLAIT_KEY_SET)
        *(unsigned *)dst = set;
    if (k->type == PLAIT_KEY_LAYOUT)
        *(int64_t *)dst = at;
    return true;
}

/* "95,5,0" or [95, 5, 0]: weights of any scale; missing ones are 0. */
static bool parse_split(const plait_key *k, const plait_yaml *doc, const plait_yaml_node *n, double *w, reason why)
{
    int count = 0;
    w[0] = w[1] = w[2] = 0.0;
    if (n->kind == PLAIT_YAML_SCALAR) {
        for (const char *s = n->text; s;) {
            char item[64];
            size_t len = strcspn(s, ",");
            while (len > 0 && isspace((unsigned char)*s))
                s++, len--;
            const char *next = s[len] == ',' ? s + len + 1 : NULL;
            while (len > 0 && isspace((unsigned char)s[len - 1]))
                len--;
            if (count == 3 || len >= sizeof item)
                return number_error(k, why, "more than three");
            memcpy(item, s, len);
            item[len] = '\0';
            if (!double_item(k, item, &w[count++], why))
                return false;
            s = next;
        }
    } else {
        if (!list_of(k, doc, n, 3, why))
            return false;
        for (int i = n->first; i >= 0; i = doc->nodes[i].next)
            if (!double_item(k, doc->nodes[i].text, &w[count++], why))
                return false;
    }
    double sum = w[0] + w[1] + w[2];
    if (!(w[0] > 0.0))
        return number_error(k, why, "the weight of the training part is 0");
    for (int i = 0; i < 3; i++)
        w[i] /= sum;
    return true;
}

/* Each of tp, dp, pp once; cp and ep at most once. */
static bool parse_order(const plait_key *k, const char *s, char *dst, reason why)
{
    static const char *const axes[] = {"tp", "dp", "pp", "cp", "ep"};
    int seen[5] = {0};
    bool ok = strlen(s) < 64;
    for (const char *p = s; ok;) {
        size_t len = strcspn(p, "-");
        int axis = 0;
        while (axis < 5 && !(len == 2 && strncmp(p, axes[axis], 2) == 0))
            axis++;
        ok = axis < 5 && seen[axis]++ == 0;
        if (p[len] == '\0')
            break;
        p += len + 1;
    }
    if (!ok || !seen[0] || !seen[1] || !seen[2]) {
        char want[512];
        plait_config_describe(k, want, sizeof want);
        return no(why, "expected %s, found \"%.40s\"", want, s);
    }
    snprintf(dst, 64, "%s", s);
    return true;
}

static bool parse_path(const char *s, const char *base_dir, char *dst, reason why)
{
    if (s[0] == '\0')
        return no(why, "the path is empty: null means none");
    bool relative = s[0] != '/' && base_dir[0] != '\0';
    int n = snprintf(dst, PLAIT_PATH_MAX, "%s%s%s", relative ? base_dir : "", relative ? "/" : "", s);
    return n < PLAIT_PATH_MAX || no(why, "the path is longer than %d bytes", PLAIT_PATH_MAX - 1);
}

bool plait_value_parse(const plait_key *k, const plait_yaml *doc, int node, const char *base_dir, void *dst, char *text,
                       size_t text_size)
{
    reason why = {text, text_size};
    const plait_yaml_node *n = &doc->nodes[node];
    if (k->type == PLAIT_KEY_SET || k->type == PLAIT_KEY_INTS || k->type == PLAIT_KEY_DOUBLES ||
        k->type == PLAIT_KEY_LAYOUT)
        return parse_list(k, doc, n, dst, why);
    if (k->type == PLAIT_KEY_SPLIT && n->kind == PLAIT_YAML_LIST)
        return parse_split(k, doc, n, (double *)dst, why);

    const char *s = scalar(k, n, why);
    if (!s)
        return false;
    switch (k->type) {
    case PLAIT_KEY_INT:
    case PLAIT_KEY_BYTES:
        return int_item(k, s, (int64_t *)dst, why);
    case PLAIT_KEY_DOUBLE:
        return double_item(k, s, (double *)dst, why);
    case PLAIT_KEY_BOOL:
        *(bool *)dst = strcmp(s, "true") == 0;
        return *(bool *)dst || strcmp(s, "false") == 0 || no(why, "expected true or false, found \"%.40s\"", s);
    case PLAIT_KEY_ENUM: {
        const plait_word *w = find_word(k, s, why);
        if (w)
            memcpy(dst, &w->value, sizeof w->value);
        return w != NULL;
    }
    case PLAIT_KEY_PATH:
        return parse_path(s, base_dir, (char *)dst, why);
    case PLAIT_KEY_ORDER:
        return parse_order(k, s, (char *)dst, why);
    default:
        return parse_split(k, doc, n, (double *)dst, why);
    }
}

/* ---- printing ---- */

static const char *word_text(const plait_key *k, int value)
{
    for (const plait_word *w = k->words; w->name; w++)
        if (w->value == value && !w->refusal)
            return w->name;
    return "auto";
}

static void append(char *out, size_t size, const char *format, ...) PLAIT_PRINTF(3, 4);

static void append(char *out, size_t size, const char *format, ...)
{
    size_t used = strlen(out);
    va_list args;
    va_start(args, format);
    vsnprintf(out + used, size - used, format, args);
    va_end(args);
}

static void list_text(const plait_key *k, const void *src, char *out, size_t size)
{
    char item[32];
    snprintf(out, size, "[");
    if (k->type == PLAIT_KEY_SET) {
        for (const plait_word *w = k->words; w->name; w++)
            if (*(const unsigned *)src & (unsigned)w->value)
                append(out, size, "%s%s", out[1] ? ", " : "", w->name);
    } else {
        const int64_t *items = (const int64_t *)src + (k->type == PLAIT_KEY_LAYOUT);
        int64_t count = k->type == PLAIT_KEY_LAYOUT ? *(const int64_t *)src : k->count;
        for (int64_t i = 0; i < count; i++) {
            if (k->type == PLAIT_KEY_DOUBLES)
                plait_double_text(((const double *)src)[i], item, sizeof item);
            else
                snprintf(item, sizeof item, "%lld", (long long)items[i]);
            append(out, size, "%s%s", i ? ", " : "", item);
        }
    }
    append(out, size, "]");
}

/* Whether the storage of a key whose default is null holds nothing. */
static bool is_none(const plait_key *k, const void *src)
{
    if (!k->dflt || strcmp(k->dflt, "null") != 0)
        return false;
    return k->type == PLAIT_KEY_PATH ? *(const char *)src == '\0' : *(const int64_t *)src == 0;
}

void plait_value_text(const plait_key *k, const void *src, char *out, size_t size)
{
    if (is_none(k, src)) {
        snprintf(out, size, "null");
        return;
    }
    switch (k->type) {
    case PLAIT_KEY_INT:
        if (*(const int64_t *)src == PLAIT_AUTO && k->lo > PLAIT_AUTO)
            snprintf(out, size, "auto");
        else
            snprintf(out, size, "%lld", (long long)*(const int64_t *)src);
        break;
    case PLAIT_KEY_BYTES:
        bytes_text(*(const int64_t *)src, out, size);
        break;
    case PLAIT_KEY_DOUBLE:
        plait_double_text(*(const double *)src, out, size);
        break;
    case PLAIT_KEY_BOOL:
        snprintf(out, size, "%s", *(const bool *)src ? "true" : "false");
        break;
    case PLAIT_KEY_ENUM: {
        int value;
        memcpy(&value, src, sizeof value);
        snprintf(out, size, "%s", word_text(k, value));
        break;
    }
    case PLAIT_KEY_PATH:
    case PLAIT_KEY_ORDER:
        snprintf(out, size, "%s", (const char *)src);
        break;
    case PLAIT_KEY_SPLIT:
        out[0] = '\0';
        for (int i = 0; i < 3; i++) {
            char item[32];
            plait_double_text(((const double *)src)[i], item, sizeof item);
            append(out, size, "%s%s", i ? "," : "", item);
        }
        break;
    case PLAIT_KEY_SET:
    case PLAIT_KEY_INTS:
    case PLAIT_KEY_DOUBLES:
    case PLAIT_KEY_LAYOUT:
        list_text(k, src, out, size);
    }
}
