/* The parts of a page: escapes, units, scales, colours that can be read, drawings that stay small. */
#include "../core/printed.h"
#include "html_page.h"
#include "launcher/html.h"
#include "launcher/html_bars.h"
#include "launcher/html_style.h"
#include "launcher/html_timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>

namespace
{

std::string escaped(const std::string &text)
{
    return printed([&](FILE *out) { plait_html_text(out, text.c_str()); });
}

/* ---- contrast, by WCAG 2 ---- */

double luminance(const std::string &hex)
{
    const double weights[] = {0.2126, 0.7152, 0.0722};
    double sum = 0;
    for (size_t i = 0; i < 3; i++) {
        const std::string two = hex.size() == 4 ? std::string(2, hex[1 + i]) : hex.substr(1 + 2 * i, 2);
        const double c = std::stoi(two, nullptr, 16) / 255.;
        sum += weights[i] * (c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4));
    }
    return sum;
}

double contrast(const std::string &a, const std::string &b)
{
    const double x = luminance(a), y = luminance(b);
    return (std::max(x, y) + 0.05) / (std::min(x, y) + 0.05);
}

using Colours = std::map<std::string, std::string>;

/* Custom properties of each :root { } in turn, over those of the first. */
std::vector<Colours> themes(const std::string &style)
{
    std::vector<Colours> all;
    for (size_t at = style.find(":root"); at != std::string::npos; at = style.find(":root", at + 1)) {
        const std::string body = style.substr(at, style.find('}', at) - at);
        Colours c = all.empty() ? Colours() : all[0];
        const std::regex one("--([a-z0-9]+): (#[0-9a-f]+);");
        for (auto i = std::sregex_iterator(body.begin(), body.end(), one); i != std::sregex_iterator(); ++i)
            c[(*i)[1]] = (*i)[2];
        all.push_back(c);
    }
    return all;
}

/* ---- a pipeline ---- */

/* Every stage does `micro` forwards and as many backwards, each a second long, one stage after the other. */
struct Pipeline {
    std::vector<plait_stage_time> stages;
    std::vector<plait_span> spans;
    plait_prediction p = {};

    Pipeline(int num_stages, int micro, int chunks = 1)
    {
        const double end = num_stages + 2. * micro * chunks;
        for (int s = 0; s < num_stages; s++) {
            for (int i = 0; i < 2 * micro * chunks; i++)
                spans.push_back({static_cast<int16_t>(s), static_cast<int16_t>(i % chunks), i >= micro * chunks,
                                 i / chunks % micro, static_cast<double>(s + i), static_cast<double>(s + i + 1)});
            stages.push_back({});
            stages.back().compute = 2. * micro * chunks;
            stages.back().idle = end - stages.back().compute;
        }
        p = {end, 0, num_stages, static_cast<int>(spans.size()), stages.data(), spans.data()};
    }
    Page page(int most, int chunks = 1) const
    {
        return Page(printed([&](FILE *out) {
            plait_html_begin(out, "test", "pipeline");
            plait_html_timeline_legend(out, chunks);
            plait_html_timeline(out, &p, chunks, most);
            plait_html_end(out);
        }));
    }
};

size_t boxes(const Page &page)
{
    return page.count("rect", "f0") + page.count("rect", "b0") + page.count("rect", "f1") + page.count("rect", "b1");
}

} // namespace

/* The reader of the tests is as strict as it says. */
TEST(Html, FaultsArePagesFaults)
{
    const struct {
        const char *body, *fault;
    } rows[] = {
        {"<p class=\"a\">x</p>", ""},
        {"<p>x", "closes what is not open"},
        {"<p>x</b>", "closes what is not open"},
        {"<b><p>x</b></p>", "closes what is not open"},
        {"<p class=a>x</p>", "not quoted"},
        {"<p class=\"a\" class=\"b\">x</p>", "twice"},
        {"<p class=\"a<b\">x</p>", "an attribute that is not escaped"},
        {"<p class=\"a&b\">x</p>", "an attribute that is not escaped"},
        {"<p>1 < 2</p>", "is no tag"},
        {"<p>1 > 2</p>", "'>' in text"},
        {"<p>a & b</p>", "is no escape"},
        {"<p onclick=\"x\">x</p>", "from elsewhere"},
        {"<script>1</script>", "from elsewhere"},
        {"<p style=\"background: url(x)\">x</p>", "from elsewhere"},
        {"<style>@import 'x';</style>", "from elsewhere"},
    };
    for (const auto &r : rows) {
        const Page page(std::string("<!DOCTYPE html>\n<html>") + r.body + "</html>\n");
        ASSERT_EQ(page.faults().empty(), r.fault[0] == '\0') << r.body;
        if (r.fault[0]) {
            EXPECT_NE(page.faults()[0].find(r.fault), std::string::npos) << r.body << ": " << page.faults()[0];
        }
    }
    EXPECT_FALSE(Page("<html></html>").faults().empty()) << "no doctype";
    EXPECT_EQ(Page("<!DOCTYPE html>\n<html><p>x").faults(),
              (std::vector<std::string>{"not closed: html", "not closed: p"}));
}

TEST(Html, EscapesText)
{
    const struct {
        const char *text, *want;
    } rows[] = {
        {"plain", "plain"},
        {"<b a=\"1\" c='2'>&amp;", "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;amp;"},
        {"\xc3\xa4\xe2\x82\xac", "\xc3\xa4\xe2\x82\xac"},
        {"a\xff\xc3(", "a\xef\xbf\xbd\xef\xbf\xbd("},
        {"tab\tline\n", "tab\tline\n"},
        {"\x01\x1b\x7f\xc2\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    };
    for (const auto &r : rows)
        EXPECT_EQ(escaped(r.text), r.want);
}

TEST(Html, LinesAreParagraphs)
{
    EXPECT_EQ(printed([](FILE *out) { plait_html_lines(out, "a < b\n\nlast", "x"); }),
              "<p class=\"x\">a &lt; b</p>\n<p class=\"x\">last</p>\n");
}

TEST(Html, ShortNumbersHaveThreeDigitsAndAUnit)
{
    const struct {
        double x;
        const char *bytes;
    } sizes[] = {{0, "0 bytes"},
                 {8, "8 bytes"},
                 {1023, "1023 bytes"},
                 {1024, "1 KiB"},
                 {1500, "1.46 KiB"},
                 {34984768, "33.4 MiB"},
                 {1073741823, "1 GiB"},
                 {53937880640., "50.2 GiB"},
                 {1099511627776. * 200.4, "200 TiB"}};
    for (const auto &r : sizes)
        EXPECT_STREQ(plait_short_bytes(r.x), r.bytes) << r.x;
    const struct {
        double x;
        const char *seconds;
    } times[] = {{0, "0"},       {1.5e-6, "1.5 \xc2\xb5s"}, {0.0057643, "5.76 ms"}, {0.9996, "1 s"},
                 {5.5, "5.5 s"}, {44.8407, "44.8 s"},       {12345, "12345 s"},     {99.96, "100 s"}};
    for (const auto &r : times)
        EXPECT_STREQ(plait_short_seconds(r.x), r.seconds) << r.x;
    EXPECT_STREQ(plait_short_count(140306.6), "140,307");
    EXPECT_STREQ(plait_short_count(0.01234), "0.0123");
}

TEST(Html, TicksAreRound)
{
    const struct {
        double most;
        int ticks;
        bool binary;
        double want;
    } rows[] = {{100, 10, false, 10}, {101, 10, false, 20}, {0.023, 5, false, 0.005}, {2.1, 5, false, 0.5},
                {80, 5, true, 16},    {81, 5, true, 32},    {0.75, 3, true, 0.25},    {0, 5, false, 1}};
    for (const auto &r : rows)
        EXPECT_NEAR(plait_html_tick(r.most, r.ticks, r.binary), r.want, 1e-12 * r.want) << r.most;
}

TEST(Html, DrawsTheFirstAndTheLast)
{
    std::string drawn;
    for (int i = 0; i < 9; i++)
        drawn += plait_html_is_drawn(i, 9, 5) ? 'x' : '.';
    EXPECT_EQ(drawn, "xxx....xx");
    for (int i = 0; i < 9; i++)
        EXPECT_TRUE(plait_html_is_drawn(i, 9, 9));
}

TEST(Html, BarsEndWhereTheirPartsEndAndTheLimitIsALine)
{
    const struct {
        double limit;
        size_t lines;
        const char *says;
    } rows[] = {
        {0, 0, ""}, {150, 1, "limit 150 bytes"}, {50, 1, "limit 50 bytes"}, {1000, 0, "limit 1000 bytes, beyond"}};
    for (const auto &r : rows) {
        SCOPED_TRACE(r.limit);
        const Page page(printed([&](FILE *out) {
            const plait_html_part parts[] = {
                {"gradients", "grad<", 25}, {"optimizer", "none", 0}, {"workspace", "w", 75}};
            plait_html_bars b = {};
            b.out = out;
            b.most = 100;
            b.limit = r.limit;
            b.say = plait_short_bytes;
            plait_html_begin(out, "test", "bars");
            plait_html_bars_begin(&b);
            plait_html_bars_row(&b, "name", "note", "value|small", parts, 3);
            plait_html_bars_end(&b);
            plait_html_end(out);
            EXPECT_GE(b.end, std::max(100., r.limit > 400 ? 0 : r.limit));
            EXPECT_LT(b.end, 400);
        }));
        EXPECT_EQ(page.faults(), std::vector<std::string>());
        EXPECT_EQ(page.count("line", "limit"), r.lines);
        EXPECT_NE(page.text().find(r.says), std::string::npos);
        EXPECT_EQ(page.count("rect"), 2U) << "nothing is nothing";
        double at = 0, ratio = 0;
        for (const Element &e : page.elements())
            if (e.name == "rect") {
                EXPECT_NEAR(std::stod(e.attributes.at("x")), at, 0.011);
                at += std::stod(e.attributes.at("width"));
                ratio = std::stod(e.attributes.at("width")) / at;
            }
        EXPECT_NEAR(ratio, 0.75, 1e-3);
        EXPECT_LE(at, 1000.01);
    }
}

TEST(Html, AllOfAShortPipelineIsDrawn)
{
    const Page page = Pipeline(4, 8).page(1000);
    EXPECT_EQ(page.faults(), std::vector<std::string>());
    EXPECT_EQ(page.count("rect", "f0"), 32U);
    EXPECT_EQ(page.count("rect", "b0"), 32U);
    EXPECT_EQ(page.count("rect", "track"), 4U);
    EXPECT_EQ(page.count("text", "stage"), 4U);
    EXPECT_EQ(page.count("text", "in"), 64U) << "every number has room";
    EXPECT_EQ(page.text().find("Not drawn"), std::string::npos);
    const Page chunks = Pipeline(2, 4, 2).page(1000, 2);
    EXPECT_EQ(chunks.count("rect", "f1"), 8U);
    EXPECT_EQ(chunks.count("rect", "b0"), 8U);
    EXPECT_NE(chunks.text().find("forward 3 of chunk 1"), std::string::npos);
}

TEST(Html, LongPipelinesAreDrawnInPart)
{
    const struct {
        int stages, micro, most;
        size_t rows;
    } rows[] = {{64, 512, 6000, 64}, {200, 40, 6000, 64}, {64, 512, 500, 16}, {2, 100000, 100, 2}, {1000, 2, 20, 16}};
    for (const auto &r : rows) {
        SCOPED_TRACE(std::to_string(r.stages) + " stages, at most " + std::to_string(r.most));
        const Page page = Pipeline(r.stages, r.micro).page(r.most);
        EXPECT_EQ(page.faults(), std::vector<std::string>());
        EXPECT_LE(boxes(page), static_cast<size_t>(r.most));
        EXPECT_EQ(page.count("text", "stage"), r.rows);
        EXPECT_GE(page.count("path", "break"), 1U);
        EXPECT_NE(page.text().find("Not drawn"), std::string::npos);
        EXPECT_NE(page.text().find("forward 0, "), std::string::npos) << "the begin";
        EXPECT_NE(page.text().find("backward " + std::to_string(r.micro - 1) + ", "), std::string::npos) << "the end";
        for (const Element &e : page.elements())
            if (e.name == "rect") {
                const double x = std::stod(e.attributes.at("x")), width = std::stod(e.attributes.at("width"));
                EXPECT_GE(x, 40);
                EXPECT_GE(width, 0);
                EXPECT_LE(x + width, 1160.2);
            }
    }
}

/* A rule of the style sheet, from its selector on; the first after `from`. */
std::string rule_of(const std::string &style, const std::string &selector, size_t from = 0)
{
    const size_t at = style.find(selector + " {", from);
    return at == std::string::npos ? "" : style.substr(at, style.find('}', at) - at);
}

/* What a frame cuts is hinted at by shadows that stay at its edges, under covers that move with the content; on paper
 * nothing is cut. */
TEST(Html, FramesShowWhereTheyGoOnAndArePrintedWhole)
{
    const std::string style = printed([](FILE *out) { plait_html_style(out); });
    const std::string frame = rule_of(style, "\n.scroll"),
                      paper = rule_of(style, "  .scroll", style.rfind("@media print"));
    EXPECT_NE(frame.find("overflow: auto"), std::string::npos) << frame;
    for (const char *side : {"right", "left", "bottom", "top"}) {
        const std::string to = std::string("linear-gradient(to ") + side + ", ";
        const size_t cover = frame.find(to + "var(--card)"), shadow = frame.find(to + "var(--edge)");
        ASSERT_NE(cover, std::string::npos) << side;
        ASSERT_NE(shadow, std::string::npos) << side;
        EXPECT_LT(cover, shadow) << side << ": the cover is on top";
        EXPECT_NE(frame.substr(cover, frame.find('\n', cover) - cover).find(" local"), std::string::npos) << side;
    }
    EXPECT_NE(paper.find("overflow: visible"), std::string::npos) << paper;
    const std::string limit = "max-height: 34rem", of_screen = "@media screen { .scroll:has(tbody tr:nth-child(25)) { ";
    ASSERT_NE(style.find(of_screen + limit), std::string::npos);
    EXPECT_EQ(style.find("max-height"), style.rfind("max-height")) << "on paper there is none";
    EXPECT_NE(paper.find("background: none"), std::string::npos) << paper;
}

TEST(Html, TextCanBeReadInEveryMode)
{
    const std::string style = printed(plait_html_style);
    const auto all = themes(style);
    ASSERT_EQ(all.size(), 3U) << "light, dark, print";
    for (const Colours &c : all)
        for (const char *text : {"ink", "dim", "good", "bad"})
            for (const char *behind : {"page", "card", "track"})
                EXPECT_GE(contrast(c.at(text), c.at(behind)), 4.5) << text << " on " << behind;
    std::smatch in, on, box;
    ASSERT_TRUE(std::regex_search(style, in, std::regex("\\.time \\.in \\{[^}]*fill: (#[0-9a-f]+)")));
    ASSERT_TRUE(std::regex_search(style, on, std::regex("\\.time \\.on \\{[^}]*fill: (#[0-9a-f]+)")));
    for (const char *css : {"f0", "f1", "b0", "b1"}) {
        ASSERT_TRUE(std::regex_search(style, box, std::regex(std::string("\\.") + css + " \\{ --at: (#[0-9a-f]+)")));
        EXPECT_GE(contrast(box[1], css[0] == 'f' ? in[1] : on[1]), 4.5) << css;
    }
}
