#include "core/safetensors.h"

#include "core/file.h"
#include "tests/core/temp_dir.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace
{

std::string le64(uint64_t n)
{
    std::string s;
    for (int i = 0; i < 8; i++)
        s.push_back(static_cast<char>(n >> (8 * i)));
    return s;
}

constexpr uint64_t kTrue = ~uint64_t{0} - 1; // not a length field of any row: the true length

// A file of a header, padded with spaces to a multiple of 8, and data.
std::string file_of(std::string header, const std::string &data, uint64_t length = kTrue)
{
    header.resize((header.size() + 7) / 8 * 8, ' ');
    return le64(length == kTrue ? header.size() : length) + header + data;
}

template <typename T> std::string bytes_of(const std::vector<T> &v)
{
    return std::string(reinterpret_cast<const char *>(v.data()), v.size() * sizeof(T));
}

std::string entry(const std::string &dtype, const std::string &shape, const std::string &offsets)
{
    return R"({"dtype":")" + dtype + R"(","shape":[)" + shape + R"(],"data_offsets":[)" + offsets + "]}";
}

const std::string kF4 = bytes_of<float>({1, 2, 3, 4});
const std::string kOne = R"({"a":)" + entry("F32", "2,2", "0,16") + "}";

struct File {
    plait_st_file *f = nullptr;
    plait_status st;
    explicit File(const std::string &path) : st(plait_st_open(path.c_str(), &f)) {}
    ~File() { plait_st_close(f); }
    std::vector<float> floats(const char *name)
    {
        const plait_st_tensor *t = plait_st_find(f, name);
        if (t == nullptr)
            return {-12345};
        std::vector<float> v(static_cast<size_t>(t->numel) + 1);
        EXPECT_EQ(plait_st_read(f, t, 0, t->numel, PLAIT_FP32, v.data()), PLAIT_OK) << plait_error_text();
        v.pop_back();
        return v;
    }
};

using Safetensors = TempDir;

long max_resident_kib()
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

} // namespace

struct BadFile {
    const char *name;
    std::string bytes;
    const char *want;
};
class SafetensorsRefuses : public Safetensors, public testing::WithParamInterface<BadFile>
{
};
void PrintTo(const BadFile &b, std::ostream *os)
{
    *os << b.name;
}

TEST_P(SafetensorsRefuses, WithTheReason)
{
    const std::string p = write("f", GetParam().bytes);
    long before = max_resident_kib();
    File f(p);
    EXPECT_EQ(f.st, PLAIT_IO);
    const std::string text = plait_error_text();
    EXPECT_NE(text.find(p), std::string::npos) << text;
    EXPECT_NE(text.find(GetParam().want), std::string::npos) << text;
    EXPECT_LT(max_resident_kib() - before, 50 * 1024);
}
const BadFile kBad[] = {
    {"empty_file", "", "0 bytes"},
    {"seven_bytes", std::string("\x10\0\0\0\0\0\0", 7), "7 bytes"},
    {"header_len_zero", le64(0) + kF4, "does not begin with {"},
    {"header_len_u64max", file_of(kOne, kF4, ~uint64_t{0}), "18446744073709551615 bytes, at most 100000000"},
    {"header_len_u64max_minus_7", file_of(kOne, kF4, ~uint64_t{0} - 7), "at most 100000000"},
    {"header_len_2_63", file_of(kOne, kF4, uint64_t{1} << 63), "at most 100000000"},
    {"header_len_1tib", file_of(kOne, kF4, uint64_t{1} << 40), "1099511627776 bytes, at most 100000000"},
    {"header_len_at_the_cap", file_of(kOne, kF4, 100000000), "header of 100000000 bytes in a file of 88"},
    {"header_len_gt_file", file_of(kOne, kF4, 4096), "header of 4096 bytes in a file of"},
    {"header_len_short", file_of(kOne, kF4, 20), "header, byte"},
    {"trunc_payload", file_of(kOne, kF4.substr(0, 10)), "bytes 0 to 16 are not a range in the 10 bytes"},
    {"trailing_bytes", file_of(kOne, kF4 + "EXTRA!!!"), "end at byte 16 of the data, the file has 24"},
    {"overlap", file_of(R"({"a":)" + entry("F32", "3", "0,12") + R"(,"b":)" + entry("F32", "2", "8,16") + "}", kF4),
     "'b' begins at byte 8 of the data, the one before ends at 12: they overlap"},
    {"hole", file_of(R"({"a":)" + entry("F32", "1", "0,4") + R"(,"b":)" + entry("F32", "2", "8,16") + "}", kF4),
     "'b' begins at byte 8 of the data, the one before ends at 4: a hole"},
    {"same_range_twice",
     file_of(R"({"a":)" + entry("F32", "4", "0,16") + R"(,"b":)" + entry("F32", "4", "0,16") + "}", kF4),
     "they overlap"},
    {"first_not_zero", file_of(R"({"a":)" + entry("F32", "2", "8,16") + "}", kF4), "a hole"},
    {"reversed_offsets", file_of(R"({"a":)" + entry("F32", "2", "16,8") + "}", kF4), "bytes 16 to 8 are not a range"},
    {"negative_offset", file_of(R"({"a":)" + entry("F32", "2", "-8,0") + "}", kF4), "bytes -8 to 0 are not a range"},
    {"span_vs_shape", file_of(R"({"a":)" + entry("F32", "1000,1000", "0,4") + "}", kF4.substr(0, 4)),
     "1000000 elements of F32 do not make the 4 bytes"},
    {"shape_product_wraps", file_of(R"({"a":)" + entry("F32", "4294967296,4294967296,4", "0,0") + "}", ""),
     "does not fit 63 bits"},
    {"byte_product_wraps", file_of(R"({"a":)" + entry("F64", "2305843009213693952", "0,0") + "}", ""),
     "do not make the 0"},
    {"negative_extent", file_of(R"({"a":)" + entry("F32", "-2,-2", "0,16") + "}", kF4), "extent 0 is not"},
    {"float_extent", file_of(R"({"a":)" + entry("F32", "4.0", "0,16") + "}", kF4), "extent 0 is not"},
    {"offset_above_63_bits", file_of(R"({"a":)" + entry("F32", "4", "0,18446744073709551616") + "}", kF4),
     "header, byte"},
    {"duplicate_name",
     file_of(R"({"a":)" + entry("F32", "2", "0,8") + R"(,"a":)" + entry("F32", "2", "8,16") + "}", kF4),
     "header, byte"},
    {"not_json", file_of("this is not json", kF4), "does not begin with {"},
    {"space_before_brace", file_of(" " + kOne, kF4), "does not begin with {"},
    {"json_array", file_of("[1,2,3]", kF4), "does not begin with {"},
    {"text_after_json", file_of(kOne + "x", kF4), "header, byte"},
    {"invalid_utf8", file_of("{\"\xc0\xaf\":" + entry("F32", "4", "0,16") + "}", kF4), "header, byte"},
    {"one_offset", file_of(R"({"a":)" + entry("F32", "4", "16") + "}", kF4), "not two whole numbers"},
    {"float_offset", file_of(R"({"a":)" + entry("F32", "4", "0,16.5") + "}", kF4), "not two whole numbers"},
    {"missing_dtype", file_of(R"({"a":{"shape":[4],"data_offsets":[0,16]}})", kF4), "has no dtype"},
    {"missing_shape", file_of(R"({"a":{"dtype":"F32","data_offsets":[0,16]}})", kF4), "has no shape"},
    {"missing_offsets", file_of(R"({"a":{"dtype":"F32","shape":[4]}})", kF4), "not two whole numbers"},
    {"metadata_number", file_of(R"({"__metadata__":{"n":0},"a":)" + entry("F32", "4", "0,16") + "}", kF4),
     "'n' is not a string"},
    {"metadata_array", file_of(R"({"__metadata__":[]})", ""), "__metadata__ is not an object"},
    {"tensor_is_a_number", file_of(R"({"a":1})", kF4), "not described by an object"},
    {"nesting_2000", file_of(R"({"a":)" + std::string(2000, '[') + std::string(2000, ']') + "}", kF4), "not described"},
    {"nesting_100000", file_of(R"({"a":)" + std::string(100000, '[') + std::string(100000, ']') + "}", kF4),
     "header, byte"},
};
INSTANTIATE_TEST_SUITE_P(, SafetensorsRefuses, testing::ValuesIn(kBad),
                         [](const auto &i) { return std::string(i.param.name); });

TEST_F(Safetensors, RefusesWhatItDoesNotKnowAsUnsupported)
{
    struct {
        std::string header;
        const char *want;
    } const rows[] = {
        {R"({"a":)" + entry("F4", "4", "0,2") + "}", "unknown dtype 'F4'"},
        {R"({"a":)" + entry("F32", "1,1,1,1,1,1,1,1,4", "0,16") + "}", "9 dimensions, at most 8"},
    };
    for (const auto &r : rows) {
        File f(write("f", file_of(r.header, kF4)));
        EXPECT_EQ(f.st, PLAIT_UNSUPPORTED);
        EXPECT_NE(std::string(plait_error_text()).find(r.want), std::string::npos) << plait_error_text();
    }
    File missing(path("missing")), directory(dir);
    EXPECT_EQ(missing.st, PLAIT_IO);
    EXPECT_EQ(directory.st, PLAIT_IO);
}

TEST_F(Safetensors, LoadsTheSmallestFile)
{
    File f(write("f", file_of(kOne, kF4)));
    ASSERT_EQ(f.st, PLAIT_OK) << plait_error_text();
    ASSERT_EQ(plait_st_count(f.f), 1);
    const plait_st_tensor *t = plait_st_at(f.f, 0);
    EXPECT_STREQ(t->name, "a");
    EXPECT_EQ(t->dtype, PLAIT_ST_F32);
    EXPECT_EQ(t->ndim, 2);
    EXPECT_EQ(t->shape[0] * 10 + t->shape[1], 22);
    EXPECT_EQ(f.floats("a"), (std::vector<float>{1, 2, 3, 4}));
    EXPECT_EQ(plait_st_find(f.f, "b"), nullptr);
    EXPECT_EQ(plait_st_metadata(f.f, "format"), nullptr);
    std::vector<double> part(2);
    ASSERT_EQ(plait_st_read(f.f, t, 1, 2, PLAIT_FP64, part.data()), PLAIT_OK);
    EXPECT_EQ(part, (std::vector<double>{2, 3}));
    EXPECT_EQ(plait_st_read(f.f, t, 3, 2, PLAIT_FP64, part.data()), PLAIT_INTERNAL);
    EXPECT_EQ(plait_st_read(f.f, t, -1, 2, PLAIT_FP64, part.data()), PLAIT_INTERNAL);
    EXPECT_EQ(plait_st_read(f.f, t, 0, 2, PLAIT_BF16, part.data()), PLAIT_UNSUPPORTED);
}

TEST_F(Safetensors, LoadsFilesWithoutTensors)
{
    const std::string rows[] = {"{}", R"({"__metadata__":{}})", R"({"__metadata__":{"k":"v"}})"};
    for (const auto &header : rows) {
        File f(write("f", file_of(header, "")));
        ASSERT_EQ(f.st, PLAIT_OK) << plait_error_text();
        EXPECT_EQ(plait_st_count(f.f), 0);
        EXPECT_EQ(plait_st_find(f.f, "__metadata__"), nullptr);
    }
    File f(path("f"));
    EXPECT_STREQ(plait_st_metadata(f.f, "k"), "v");
}

TEST_F(Safetensors, LoadsUnusualButLegalFiles)
{
    File scalar(write("scalar", file_of(R"({"s":)" + entry("F32", "", "0,4") + "}", kF4.substr(0, 4))));
    ASSERT_EQ(scalar.st, PLAIT_OK) << plait_error_text();
    EXPECT_EQ(plait_st_at(scalar.f, 0)->ndim, 0);
    EXPECT_EQ(scalar.floats("s"), std::vector<float>{1});

    File zero(write("zero", file_of(R"({"z":)" + entry("F32", "0,4", "0,0") + R"(,"a":)" + entry("F32", "4", "0,16") +
                                        R"(,"y":)" + entry("F32", "0", "16,16") + "}",
                                    kF4)));
    ASSERT_EQ(zero.st, PLAIT_OK) << plait_error_text();
    EXPECT_EQ(plait_st_count(zero.f), 3);
    EXPECT_EQ(zero.floats("z"), std::vector<float>{});
    EXPECT_EQ(zero.floats("a").size(), 4u);

    File unordered(
        write("unordered",
              file_of(R"({"b":)" + entry("F32", "2", "8,16") + R"(,"a":)" + entry("F32", "2", "0,8") + "}", kF4)));
    ASSERT_EQ(unordered.st, PLAIT_OK) << plait_error_text();
    EXPECT_STREQ(plait_st_at(unordered.f, 0)->name, "a");
    EXPECT_EQ(unordered.floats("b"), (std::vector<float>{3, 4}));

    File padded(write("padded", file_of(kOne + std::string(100000, ' '), kF4)));
    EXPECT_EQ(padded.st, PLAIT_OK) << plait_error_text();

    File unicode(write("unicode", file_of(R"({"\u00e9\u4e2d.\ud83d\ude00":)" + entry("F32", "4", "0,16") + "}", kF4)));
    ASSERT_EQ(unicode.st, PLAIT_OK) << plait_error_text();
    EXPECT_EQ(unicode.floats("\xc3\xa9\xe4\xb8\xad.\xf0\x9f\x98\x80").size(), 4u);

    // a header whose length is no multiple of 8: the data is not aligned
    File odd(write("odd", le64(kOne.size() + 1) + kOne + " " + kF4));
    ASSERT_EQ(odd.st, PLAIT_OK) << plait_error_text();
    EXPECT_EQ(odd.floats("a"), (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(Safetensors, ConvertsExactlyAndKeepsBits)
{
    const std::string data = bytes_of<double>({0.1, 1e300}) + bytes_of<uint32_t>({0x7fa00001, 0x80000000, 0x00000001}) +
                             bytes_of<uint16_t>({0x3f80, 0xbf80, 0x7f80, 0x8000}) +
                             bytes_of<uint16_t>({0x3c00, 0x0001}) + std::string(4, '\x05');
    File f(write("f", file_of(R"({"d":)" + entry("F64", "2", "0,16") + R"(,"s":)" + entry("F32", "3", "16,28") +
                                  R"(,"b":)" + entry("BF16", "4", "28,36") + R"(,"h":)" + entry("F16", "2", "36,40") +
                                  R"(,"i":)" + entry("U8", "4", "40,44") + "}",
                              data)));
    ASSERT_EQ(f.st, PLAIT_OK) << plait_error_text();
    EXPECT_EQ(f.floats("d"), (std::vector<float>{0.1f, INFINITY}));
    std::vector<float> b = f.floats("b");
    EXPECT_EQ(b, (std::vector<float>{1, -1, INFINITY, 0}));
    EXPECT_TRUE(std::signbit(b[3]));
    EXPECT_EQ(f.floats("h"), (std::vector<float>{1, 0x1p-24f}));
    std::vector<double> d(2);
    ASSERT_EQ(plait_st_read(f.f, plait_st_find(f.f, "d"), 0, 2, PLAIT_FP64, d.data()), PLAIT_OK);
    EXPECT_EQ(d, (std::vector<double>{0.1, 1e300}));
    uint32_t bits[3];
    ASSERT_EQ(plait_st_read(f.f, plait_st_find(f.f, "s"), 0, 3, PLAIT_FP32, bits), PLAIT_OK);
    EXPECT_EQ(bits[0], 0x7fa00001u); // a signalling NaN as it was
    EXPECT_EQ(bits[1], 0x80000000u);
    EXPECT_EQ(bits[2], 1u);
    EXPECT_EQ(plait_st_read(f.f, plait_st_find(f.f, "i"), 0, 4, PLAIT_FP32, bits), PLAIT_UNSUPPORTED);
    unsigned char raw[8];
    ASSERT_EQ(plait_st_read_raw(f.f, plait_st_find(f.f, "b"), 1, 2, raw), PLAIT_OK);
    EXPECT_EQ(std::memcmp(raw, "\x80\xbf\x80\x7f", 4), 0);
    ASSERT_EQ(plait_st_read_raw(f.f, plait_st_find(f.f, "i"), 3, 1, raw), PLAIT_OK);
    EXPECT_EQ(raw[0], 5);
    EXPECT_EQ(plait_st_read_raw(f.f, plait_st_find(f.f, "i"), 3, 2, raw), PLAIT_INTERNAL);
    EXPECT_EQ(plait_st_dtype_size(PLAIT_ST_BF16), 2u);
}

// Files of another writer, with names and layouts of Hugging Face.
TEST(SafetensorsFile, LoadsSmallModels)
{
    struct {
        const char *name, *tensor;
        int64_t tensors, rows, cols;
    } const rows[] = {
        {"llama_tiny", "model.layers.1.mlp.down_proj.weight", 21, 16, 24},
        {"gpt2_tiny", "transformer.h.1.attn.c_attn.weight", 28, 16, 48},
    };
    for (const auto &r : rows) {
        File f(std::string(PLAIT_SOURCE_DIR "/tests/data/hf/") + r.name + "/model.safetensors");
        ASSERT_EQ(f.st, PLAIT_OK) << plait_error_text();
        EXPECT_EQ(plait_st_count(f.f), r.tensors) << r.name;
        const plait_st_tensor *t = plait_st_find(f.f, r.tensor);
        ASSERT_NE(t, nullptr) << r.tensor;
        EXPECT_EQ(t->shape[0], r.rows);
        EXPECT_EQ(t->shape[1], r.cols);
        for (float x : f.floats(r.tensor))
            ASSERT_EQ(x * 256, std::round(x * 256)) << r.name;
    }
}

TEST_F(Safetensors, AFileTruncatedAfterOpeningIsAnError)
{
    const std::string p =
        write("f", file_of(R"({"a":)" + entry("F32", "100000", "0,400000") + "}", std::string(400000, 'x')));
    File f(p);
    ASSERT_EQ(f.st, PLAIT_OK) << plait_error_text();
    std::filesystem::resize_file(p, 1000);
    std::vector<double> v(100000);
    EXPECT_EQ(plait_st_read(f.f, plait_st_at(f.f, 0), 0, 100000, PLAIT_FP64, v.data()), PLAIT_IO);
    EXPECT_NE(std::string(plait_error_text()).find("ends at byte 1000"), std::string::npos) << plait_error_text();
}

TEST_F(Safetensors, WhatIsWrittenIsReadBack)
{
    const plait_st_spec specs[] = {
        {"z.weight", PLAIT_FP32, plait_shape_2d(3, 5)},   {"b.half", PLAIT_BF16, plait_shape_1d(3)},
        {"a.weight", PLAIT_FP32, plait_shape_1d(1)},      {"big", PLAIT_FP64, plait_shape_1d(2)},
        {"q\"\\\xc3\xa9", PLAIT_FP16, plait_shape_1d(1)}, {"none", PLAIT_FP32, plait_shape_1d(0)},
        {"scalar", PLAIT_FP32, {0, {0, 0, 0, 0}}},
    };
    const char *const metadata[] = {"step", "10", "quote", "\"\n"};
    plait_st_writer *w = nullptr;
    ASSERT_EQ(plait_st_writer_create(path("out").c_str(), specs, 7, metadata, 2, &w), PLAIT_OK) << plait_error_text();
    for (int i = 0; i < 15; i++)
        static_cast<float *>(plait_st_writer_data(w, 0))[i] = static_cast<float>(i) / 3;
    const uint16_t half[] = {0x3f80, 0x4000, 0x4040};
    std::memcpy(plait_st_writer_data(w, 1), half, sizeof half);
    *static_cast<float *>(plait_st_writer_data(w, 2)) = 7;
    static_cast<double *>(plait_st_writer_data(w, 3))[1] = 0.1;
    *static_cast<float *>(plait_st_writer_data(w, 6)) = -3;
    EXPECT_FALSE(std::filesystem::exists(path("out")));
    ASSERT_EQ(plait_st_writer_commit(w), PLAIT_OK) << plait_error_text();
    EXPECT_EQ(files(), 1);

    File f(path("out"));
    ASSERT_EQ(f.st, PLAIT_OK) << plait_error_text();
    const char *const want[] = {"big", "a.weight", "none", "scalar", "z.weight", "b.half", "q\"\\\xc3\xa9"};
    ASSERT_EQ(plait_st_count(f.f), 7);
    for (int i = 0; i < 7; i++)
        EXPECT_NE(plait_st_find(f.f, want[i]), nullptr) << want[i];
    EXPECT_STREQ(plait_st_at(f.f, 0)->name, "big");
    EXPECT_STREQ(plait_st_at(f.f, 1)->name, "a.weight");
    EXPECT_STREQ(plait_st_at(f.f, 4)->name, "z.weight");
    EXPECT_STREQ(plait_st_at(f.f, 6)->name, want[6]);
    EXPECT_EQ(f.floats("z.weight")[14], 14.0f / 3);
    EXPECT_EQ(f.floats("b.half"), (std::vector<float>{1, 2, 3}));
    EXPECT_EQ(f.floats("a.weight"), std::vector<float>{7});
    EXPECT_EQ(f.floats("big"), (std::vector<float>{0, 0.1f}));
    EXPECT_EQ(f.floats("scalar"), std::vector<float>{-3});
    EXPECT_STREQ(plait_st_metadata(f.f, "format"), "pt");
    EXPECT_STREQ(plait_st_metadata(f.f, "step"), "10");
    EXPECT_STREQ(plait_st_metadata(f.f, "quote"), "\"\n");

    std::ifstream in(path("out"), std::ios::binary);
    char head[9];
    in.read(head, 9);
    EXPECT_EQ(head[0] % 8, 0);
    EXPECT_EQ(head[8], '{');
}

TEST_F(Safetensors, ANoTensorFileCanBeReadBack)
{
    plait_st_writer *w = nullptr;
    ASSERT_EQ(plait_st_writer_create(path("out").c_str(), nullptr, 0, nullptr, 0, &w), PLAIT_OK) << plait_error_text();
    ASSERT_EQ(plait_st_writer_commit(w), PLAIT_OK) << plait_error_text();
    File f(path("out"));
    EXPECT_EQ(f.st, PLAIT_OK) << plait_error_text();
}

TEST_F(Safetensors, AbortLeavesTheOldFile)
{
    write("out", "old");
    const plait_st_spec spec = {"a", PLAIT_FP32, plait_shape_1d(4)};
    plait_st_writer *w = nullptr;
    ASSERT_EQ(plait_st_writer_create(path("out").c_str(), &spec, 1, nullptr, 0, &w), PLAIT_OK) << plait_error_text();
    EXPECT_LE(files(), 2); // where a file cannot be without a name, the one being written has one
    EXPECT_EQ(std::filesystem::file_size(path("out")), 3u);
    plait_st_writer_abort(w);
    EXPECT_EQ(files(), 1);
    EXPECT_EQ(std::filesystem::file_size(path("out")), 3u);
    plait_st_writer_abort(nullptr);
}

TEST_F(Safetensors, AFileThatCannotBeMadeIsRefusedAtOnceAndLeavesNothing)
{
    const plait_st_spec good = {"a", PLAIT_FP32, plait_shape_1d(4)},
                        huge = {"a", PLAIT_FP32, plait_shape_2d(1 << 30, 1 << 28)},
                        overflow = {"a", PLAIT_FP32, plait_shape_2d(int64_t{1} << 40, int64_t{1} << 40)},
                        integers = {"a", PLAIT_INT32, plait_shape_1d(4)};
    const plait_st_spec twice[] = {good, good};
    write("plain", "");
    struct {
        const char *name;
        std::string path;
        const plait_st_spec *specs;
        int64_t count;
        plait_status code;
    } const rows[] = {
        {"no_directory", path("missing/out"), &good, 1, PLAIT_IO},
        {"a_file_as_directory", path("plain/out"), &good, 1, PLAIT_IO},
        {"no_space_for_an_exbibyte", path("out"), &huge, 1, PLAIT_IO},
        {"bytes_overflow", path("out"), &overflow, 1, PLAIT_INTERNAL},
        {"type", path("out"), &integers, 1, PLAIT_UNSUPPORTED},
        {"one_name_twice", path("out"), twice, 2, PLAIT_INTERNAL},
    };
    for (const auto &r : rows) {
        plait_st_writer *w = nullptr;
        EXPECT_EQ(plait_st_writer_create(r.path.c_str(), r.specs, r.count, nullptr, 0, &w), r.code)
            << r.name << ": " << plait_error_text();
        EXPECT_EQ(w, nullptr);
        EXPECT_EQ(files(), 1) << r.name;
    }
}

TEST_F(Safetensors, TheFileSizeLimitIsAnErrorAndNotASignal)
{
    struct rlimit old, low = {4096, 0};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
    low.rlim_max = old.rlim_max;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
    const plait_st_spec spec = {"a", PLAIT_FP32, plait_shape_1d(4096)};
    plait_st_writer *w = nullptr;
    plait_status st = plait_st_writer_create(path("out").c_str(), &spec, 1, nullptr, 0, &w);
    setrlimit(RLIMIT_FSIZE, &old);
    EXPECT_EQ(st, PLAIT_IO);
    EXPECT_NE(std::string(plait_error_text()).find("limit of 4096"), std::string::npos) << plait_error_text();
    EXPECT_EQ(files(), 0);
}

TEST_F(Safetensors, ADirectoryInTheWayFailsAtCommit)
{
    const plait_st_spec spec = {"a", PLAIT_FP32, plait_shape_1d(4)};
    std::filesystem::create_directories(path("out/x"));
    plait_st_writer *w = nullptr;
    ASSERT_EQ(plait_st_writer_create(path("out").c_str(), &spec, 1, nullptr, 0, &w), PLAIT_OK) << plait_error_text();
    EXPECT_EQ(plait_st_writer_commit(w), PLAIT_IO);
    EXPECT_EQ(files(), 1); // the directory alone
}

TEST_F(Safetensors, WritabilityIsKnownEarly)
{
    std::filesystem::create_directories(path("d"));
    write("plain", "old");
    struct {
        const char *name;
        std::string path;
        plait_status want;
    } const rows[] = {
        {"new", path("new"), PLAIT_OK},
        {"existing", path("plain"), PLAIT_OK},
        {"no_directory", path("missing/out"), PLAIT_IO},
        {"a_file_as_directory", path("plain/out"), PLAIT_IO},
        {"a_directory", path("d"), PLAIT_IO},
        {"slash_at_the_end", path("d/"), PLAIT_IO},
        {"nothing", "", PLAIT_IO},
        {"too_long", path(std::string(300, 'x')), PLAIT_IO},
    };
    for (const auto &r : rows)
        EXPECT_EQ(plait_file_check_writable(r.path.c_str()), r.want) << r.name << ": " << plait_error_text();
    EXPECT_EQ(files(), 2);
    EXPECT_EQ(std::filesystem::file_size(path("plain")), 3u);
    if (geteuid() != 0) { // root may write everywhere
        chmod(path("d").c_str(), 0500);
        EXPECT_EQ(plait_file_check_writable(path("d/out").c_str()), PLAIT_IO);
        chmod(path("d").c_str(), 0700);
    }
}
