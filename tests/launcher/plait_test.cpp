#include "plait_test.h"

#include "core/safetensors.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

const std::string kTiny = source("configs/tiny.yaml");
const std::string kTiny8 = source("configs/tiny8.yaml");

std::string mpiexec()
{
    return PLAIT_MPIEXEC;
}
std::string plait_binary()
{
    return PLAIT_BINARY;
}
std::string source(const std::string &relative)
{
    return std::string(PLAIT_SOURCE_DIR) + "/" + relative;
}

std::string text_of(const Words &words)
{
    std::string all;
    for (const std::string &w : words)
        all += (all.empty() ? "" : " ") + w;
    return all;
}

Directory::Directory()
{
    std::string name = testing::TempDir() + "plait-XXXXXX";
    path = mkdtemp(name.data());
}
Directory::~Directory()
{
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
}

std::string PlaitTest::write(const std::string &name, const std::string &bytes) const
{
    std::ofstream(path(name), std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path(name);
}
std::string PlaitTest::read(const std::string &name) const
{
    std::stringstream s;
    s << std::ifstream(path(name), std::ios::binary).rdbuf();
    return s.str();
}
bool PlaitTest::exists(const std::string &name) const
{
    return std::filesystem::exists(path(name));
}

Words PlaitTest::launcher(int ranks)
{
    return ranks > 0 ? Words{mpiexec(), "-n", std::to_string(ranks)} : Words{};
}

Command PlaitTest::plait(const Words &args, const Words &launcher) const
{
    Command c(launcher + Words{plait_binary()} + args);
    c.in(directory());
    return c;
}

Trained PlaitTest::train(const std::string &config, const Words &overrides, const Words &launcher, double limit) const
{
    static int number;
    std::string metrics = path("metrics-" + std::to_string(number++) + ".jsonl");
    Words args = Words{"train", config} + overrides + Words{"logging.metrics_file=" + metrics};
    Trained r;
    r.outcome = plait(args, launcher).limit(limit).run();
    EXPECT_EQ(r.outcome.code, 0) << text_of(launcher) << " plait " << text_of(args) << "\n" << r.outcome;
    EXPECT_FALSE(r.outcome.timed_out) << text_of(args);
    EXPECT_TRUE(r.outcome.left.empty()) << text_of(args) << "\n" << r.outcome;
    if (r.outcome.code == 0) {
        r.metrics = read_metrics(metrics);
        EXPECT_TRUE(r.metrics.ended) << text_of(args);
    }
    return r;
}

/* ---- weight files ---- */

namespace
{

class OpenFile
{
  public:
    explicit OpenFile(const std::string &path)
    {
        if (plait_st_open(path.c_str(), &file) != PLAIT_OK)
            ADD_FAILURE() << plait_error_text();
    }
    ~OpenFile() { plait_st_close(file); }
    OpenFile(const OpenFile &) = delete;
    OpenFile &operator=(const OpenFile &) = delete;
    plait_st_file *file = nullptr;
};

std::vector<double> values_of(const plait_st_file *file, const plait_st_tensor *t)
{
    std::vector<double> values(static_cast<size_t>(t->numel));
    if (plait_st_read(file, t, 0, t->numel, PLAIT_FP64, values.data()) != PLAIT_OK)
        ADD_FAILURE() << plait_error_text();
    return values;
}

bool same_names_and_shapes(const Weights &a, const Weights &b, const std::string &what)
{
    bool same = !a.empty() && a.size() == b.size() &&
                std::equal(a.begin(), a.end(), b.begin(), [](const auto &x, const auto &y) {
                    return x.first == y.first && x.second.shape == y.second.shape;
                });
    EXPECT_TRUE(same) << what << ": other tensors: " << a.size() << " and " << b.size();
    return same;
}

} // namespace

Weights read_weights(const std::string &path)
{
    Weights all;
    OpenFile f(path);
    for (int64_t i = 0; f.file && i < plait_st_count(f.file); i++) {
        const plait_st_tensor *t = plait_st_at(f.file, i);
        all[t->name] = {std::vector<int64_t>(t->shape, t->shape + t->ndim), values_of(f.file, t)};
    }
    return all;
}

namespace
{

plait_st_spec spec_of(const char *name, plait_dtype dtype, const int64_t *extents, int ndim)
{
    plait_shape shape = {};
    shape.ndim = ndim;
    std::copy(extents, extents + ndim, shape.dim);
    return {name, dtype, shape};
}

/* A file of FP32 and FP64 tensors; values_at(i) are those of tensor i. */
void write_tensors(const std::string &path, const std::vector<plait_st_spec> &specs,
                   const std::function<std::vector<double>(size_t i)> &values_at)
{
    plait_st_writer *w = nullptr;
    ASSERT_EQ(plait_st_writer_create(path.c_str(), specs.data(), static_cast<int64_t>(specs.size()), nullptr, 0, &w),
              PLAIT_OK)
        << plait_error_text();
    for (size_t i = 0; i < specs.size(); i++) {
        const std::vector<double> values = values_at(i);
        void *data = plait_st_writer_data(w, static_cast<int64_t>(i));
        if (specs[i].dtype == PLAIT_FP64)
            std::copy(values.begin(), values.end(), static_cast<double *>(data));
        else
            std::transform(values.begin(), values.end(), static_cast<float *>(data),
                           [](double x) { return static_cast<float>(x); });
    }
    ASSERT_EQ(plait_st_writer_commit(w), PLAIT_OK) << plait_error_text();
}

} // namespace

void write_weights(const std::string &path, const Weights &w)
{
    std::vector<plait_st_spec> specs;
    for (const auto &[name, tensor] : w)
        specs.push_back(spec_of(name.c_str(), PLAIT_FP32, tensor.shape.data(), static_cast<int>(tensor.shape.size())));
    write_tensors(path, specs, [&](size_t i) { return w.at(specs[i].name).values; });
}

void edit_weights(const std::string &from, const std::string &to,
                  const std::function<void(const std::string &name, std::vector<double> &values)> &change)
{
    OpenFile f(from);
    ASSERT_NE(f.file, nullptr);
    std::vector<plait_st_spec> specs;
    for (int64_t i = 0; i < plait_st_count(f.file); i++) {
        const plait_st_tensor *t = plait_st_at(f.file, i);
        ASSERT_TRUE(t->dtype == PLAIT_ST_F32 || t->dtype == PLAIT_ST_F64) << t->name;
        specs.push_back(
            spec_of(t->name, t->dtype == PLAIT_ST_F32 ? PLAIT_FP32 : PLAIT_FP64, t->shape, static_cast<int>(t->ndim)));
    }
    write_tensors(to, specs, [&](size_t i) {
        std::vector<double> values = values_of(f.file, plait_st_at(f.file, static_cast<int64_t>(i)));
        change(specs[i].name, values);
        return values;
    });
}

void expect_same_weights(const Weights &a, const Weights &b, const std::string &what)
{
    if (!same_names_and_shapes(a, b, what))
        return;
    for (const auto &[name, t] : a) {
        const std::vector<double> &u = b.at(name).values;
        size_t i = 0;
        while (i < u.size() && std::memcmp(&u[i], &t.values[i], sizeof u[i]) == 0)
            i++;
        if (i < u.size())
            ADD_FAILURE() << what << ": " << name << "[" << i << "]: " << t.values[i] << " and " << u[i];
    }
}

void expect_near_weights(const Weights &a, const Weights &b, double bound, const std::string &what)
{
    if (!same_names_and_shapes(a, b, what))
        return;
    for (const auto &[name, t] : a) {
        const std::vector<double> &u = b.at(name).values;
        double difference = 0, size = 0;
        for (size_t i = 0; i < u.size(); i++) {
            difference += (u[i] - t.values[i]) * (u[i] - t.values[i]);
            size += u[i] * u[i];
        }
        EXPECT_LE(std::sqrt(difference), bound * std::sqrt(size)) << what << ": " << name;
    }
}

int64_t count_elements(const Weights &w)
{
    int64_t n = 0;
    for (const auto &entry : w)
        n += static_cast<int64_t>(entry.second.values.size());
    return n;
}

void expect_near(const std::vector<double> &a, const std::vector<double> &b, double bound, const std::string &what,
                 size_t count)
{
    if (count == 0) {
        EXPECT_EQ(a.size(), b.size()) << what;
        count = b.size();
    }
    ASSERT_GT(count, 0u) << what;
    ASSERT_LE(count, std::min(a.size(), b.size())) << what;
    for (size_t i = 0; i < count; i++)
        EXPECT_LE(std::fabs(a[i] - b[i]), bound * std::fabs(b[i]))
            << what << ": step " << i + 1 << ": " << a[i] << " instead of " << b[i];
}
