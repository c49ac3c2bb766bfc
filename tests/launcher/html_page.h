/* tests/launcher/html_page.h: reads a page strictly: every tag that is opened is closed in order, attributes are
 * quoted, text is escaped, nothing comes from elsewhere. What browsers forgive is a fault here.
 */
#ifndef PLAIT_TESTS_LAUNCHER_HTML_PAGE_H
#define PLAIT_TESTS_LAUNCHER_HTML_PAGE_H

#include <map>
#include <string>
#include <vector>

struct Element {
    std::string name, parent;
    std::map<std::string, std::string> attributes;
    std::string text; /* of itself and all that is in it, without markup and escapes */
};

class Page
{
  public:
    explicit Page(const std::string &html);

    const std::vector<std::string> &faults() const { return faults_; } /* none: it is well-formed */
    std::string text() const { return elements_.empty() ? "" : elements_[0].text; }
    size_t count(const std::string &name, const std::string &css = "") const;
    /* Text of each, in order; css: one of its classes, "": any. */
    std::vector<std::string> texts(const std::string &name, const std::string &css = "") const;
    /* Cells of the rows of the body of the table with that label. */
    std::vector<std::vector<std::string>> table(const std::string &label) const;
    const std::vector<Element> &elements() const { return elements_; } /* as they begin */

  private:
    void fault(const std::string &html, size_t at, const std::string &what);
    std::vector<std::string> faults_;
    std::vector<Element> elements_;
};

#endif
