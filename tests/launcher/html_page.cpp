#include "html_page.h"

#include <algorithm>
#include <set>

namespace
{

/* Elements without content, which have no closing tag. */
const std::set<std::string> kVoid = {"meta", "br", "hr", "img", "link"};
const char kNameCharacters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-";

/* Replaces escapes; false: one that is not known. */
bool unescape(const std::string &in, std::string *out)
{
    static const std::map<std::string, std::string> known = {
        {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}, {"&quot;", "\""}, {"&#39;", "'"}};
    for (size_t i = 0; i < in.size();) {
        if (in[i] != '&') {
            *out += in[i++];
            continue;
        }
        const size_t end = in.find(';', i);
        const auto found = end == std::string::npos ? known.end() : known.find(in.substr(i, end - i + 1));
        if (found == known.end())
            return false;
        *out += found->second;
        i = end + 1;
    }
    return true;
}

bool has_class(const Element &e, const std::string &css)
{
    const auto found = e.attributes.find("class");
    return css.empty() ||
           (found != e.attributes.end() && (" " + found->second + " ").find(" " + css + " ") != std::string::npos);
}

/* Whether the page would load or run something. */
bool from_elsewhere(const Element &e)
{
    static const std::set<std::string> elements = {"script", "link",  "img", "image", "iframe",
                                                   "object", "embed", "use", "a"};
    for (const auto &[key, value] : e.attributes)
        if (key == "src" || key == "href" || key == "srcset" || key.rfind("on", 0) == 0 ||
            value.find("url(") != std::string::npos)
            return true;
    return elements.count(e.name) > 0 || (e.name == "style" && (e.text.find("url(") != std::string::npos ||
                                                                e.text.find("@import") != std::string::npos));
}

} // namespace

void Page::fault(const std::string &html, size_t at, const std::string &what)
{
    if (faults_.size() < 20)
        faults_.push_back(what + ": " + html.substr(at, 60));
}

Page::Page(const std::string &html)
{
    const std::string doctype = "<!DOCTYPE html>\n";
    std::vector<size_t> open;
    size_t at = doctype.size();
    if (html.compare(0, doctype.size(), doctype) != 0)
        fault(html, 0, "no doctype");
    while (at < html.size()) {
        const size_t next = std::min(html.find('<', at), html.size());
        std::string text;
        if (!unescape(html.substr(at, next - at), &text))
            fault(html, at, "'&' that is no escape");
        if (html.substr(at, next - at).find('>') != std::string::npos)
            fault(html, at, "'>' in text");
        if (open.empty() && text.find_first_not_of('\n') != std::string::npos)
            fault(html, at, "text outside of all elements");
        for (size_t i : open)
            elements_[i].text += text;
        at = next;
        if (at == html.size())
            break;
        const bool closing = html.compare(at, 2, "</") == 0;
        const size_t begin = at + (closing ? 2 : 1), end = html.find_first_not_of(kNameCharacters, begin);
        if (end == std::string::npos || end == begin) {
            fault(html, at, "'<' that is no tag");
            at++;
            continue;
        }
        const std::string name = html.substr(begin, end - begin);
        if (closing) {
            if (html[end] != '>' || open.empty() || elements_[open.back()].name != name)
                fault(html, at, "closes what is not open");
            else
                open.pop_back();
            at = end + 1;
            continue;
        }
        Element e{name, open.empty() ? "" : elements_[open.back()].name, {}, ""};
        size_t p = end;
        while (html[p] == ' ') {
            const size_t key = p + 1, equal = html.find_first_not_of(kNameCharacters, key);
            if (equal == std::string::npos || equal == key || html.compare(equal, 2, "=\"") != 0) {
                fault(html, p, "an attribute that is not quoted");
                break;
            }
            const size_t quote = std::min(html.find('"', equal + 2), html.size());
            const std::string raw = html.substr(equal + 2, quote - equal - 2);
            std::string value;
            if (raw.find_first_of("<>") != std::string::npos || !unescape(raw, &value))
                fault(html, p, "an attribute that is not escaped");
            if (!e.attributes.emplace(html.substr(key, equal - key), value).second)
                fault(html, p, "an attribute twice");
            p = quote + 1;
        }
        const bool alone = html.compare(p, 2, "/>") == 0;
        if (!alone && html[p] != '>')
            fault(html, at, "a tag that does not end");
        at = p + (alone ? 2 : 1);
        elements_.push_back(e);
        if (!alone && kVoid.count(name) == 0)
            open.push_back(elements_.size() - 1);
        if (name == "style") { /* not markup */
            const size_t stop = std::min(html.find("</style>", at), html.size());
            elements_.back().text = html.substr(at, stop - at);
            at = stop;
        }
        if (from_elsewhere(elements_.back()))
            fault(html, begin, "from elsewhere, or a script");
    }
    for (size_t i : open)
        faults_.push_back("not closed: " + elements_[i].name);
}

size_t Page::count(const std::string &name, const std::string &css) const
{
    return texts(name, css).size();
}

std::vector<std::string> Page::texts(const std::string &name, const std::string &css) const
{
    std::vector<std::string> all;
    for (const Element &e : elements_)
        if (e.name == name && has_class(e, css))
            all.push_back(e.text);
    return all;
}

std::vector<std::vector<std::string>> Page::table(const std::string &label) const
{
    std::vector<std::vector<std::string>> rows;
    bool here = false;
    for (const Element &e : elements_) {
        const auto found = e.attributes.find("aria-label");
        if (e.name == "div" && has_class(e, "scroll"))
            here = found != e.attributes.end() && found->second == label;
        if (here && e.name == "tr" && e.parent == "tbody")
            rows.emplace_back();
        if (here && e.name == "td" && !rows.empty())
            rows.back().push_back(e.text);
    }
    return rows;
}
