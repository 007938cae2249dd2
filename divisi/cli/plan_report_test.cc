#include "divisi/cli/plan_report.h"

#include <gtest/gtest.h>

#include <set>

#include "divisi/core/utf8.h"
#include "divisi/plan/example_scenario.h"

namespace divisi {
namespace {

// The first fault of a page's form: a tag that is not closed, an id twice, a stray '<' or '&', a
// reference to a place that is not on the page. Empty where there is none.
class PageCheck {
 public:
  explicit PageCheck(std::string_view page) : page_(page) {}

  std::string Fault() {
    while (at_ < page_.size()) {
      if (page_[at_] == '&' && !IsReference()) return Near("a stray '&'");
      if (page_[at_] != '<') {
        ++at_;
        continue;
      }
      const size_t end = page_.find('>', at_);
      if (end == std::string_view::npos) return Near("a tag without an end");
      const std::string_view tag = page_.substr(at_ + 1, end - at_ - 1);
      if (tag.find('<') != std::string_view::npos) return Near("a stray '<'");
      if (std::string fault = Take(tag); !fault.empty()) return fault;
      at_ = end + 1;
    }
    return open_.empty() ? "" : "not closed: " + std::string(open_.back());
  }

 private:
  bool IsReference() const {
    const std::string_view rest = page_.substr(at_, 8);
    return rest.starts_with("&lt;") || rest.starts_with("&gt;") || rest.starts_with("&amp;") ||
           rest.starts_with("&quot;") || rest.starts_with("&#39;");
  }
  std::string Near(const char* what) const {
    return std::string(what) + " near " + std::string(page_.substr(at_, 60));
  }
  std::string Take(std::string_view tag) {
    if (tag.starts_with('!')) return "";
    if (tag.starts_with('/')) {
      if (open_.empty() || open_.back() != tag.substr(1)) return Near("closes what is not open");
      open_.pop_back();
      return "";
    }
    const std::string_view name = tag.substr(0, tag.find_first_of(" \n/"));
    if (const size_t id = tag.find(" id=\""); id != std::string_view::npos) {
      const std::string_view rest = tag.substr(id + 5);
      if (!ids_.insert(rest.substr(0, rest.find('"'))).second) return Near("an id twice");
    }
    if (name != "meta" && !tag.ends_with('/')) open_.push_back(name);
    return "";
  }

  std::string_view page_;
  size_t at_ = 0;
  std::vector<std::string_view> open_;
  std::set<std::string_view> ids_;
};

// A failure that does not print the page.
testing::AssertionResult Shows(const std::string& page, const std::string& text) {
  const bool shows = page.find(text) != std::string::npos;
  return (shows ? testing::AssertionSuccess() : testing::AssertionFailure())
         << (shows ? "shows " : "does not show ") << text;
}

// Of a scenario, after what every report must keep.
std::string ReportOf(const Scenario& scenario) {
  const auto plan = MakePlan(scenario);
  if (!plan) {
    ADD_FAILURE() << plan.error().message;
    return "";
  }
  const std::string page = PlanReport(scenario, *plan);
  EXPECT_EQ(PageCheck(page).Fault(), "");
  EXPECT_TRUE(IsUtf8(page));
  EXPECT_LT(page.size(), size_t{1} << 20);
  // Nothing comes from elsewhere, nothing runs, and no number came out as none.
  for (const char* absent : {"http://", "https://", "<script", "<link", "<img", "url(//", "nan",
                             "inf ", ">inf", "=\"inf", "-inf"}) {
    EXPECT_FALSE(Shows(page, absent));
  }
  return page;
}

TEST(PlanReportTest, ShowsExample98) {
  const std::string page = ReportOf(ExampleEightCards());
  for (const char* title :
       {"Why", "Which card does what", "Every split of the cards", "The backlog of the start",
        "state at its transfer", "Memory of a card", "Candidates", "What would change the choice",
        "Fewer cards", "Where the numbers come from"}) {
    EXPECT_TRUE(Shows(page, title));
  }
  // Figure 9-10 has 25 cells, one framed; figure 9-42 its deadline; figures 9-6 to 9-8 the bytes.
  EXPECT_TRUE(Shows(page, ">3.98</text>"));
  EXPECT_TRUE(Shows(page, "class=\"frame\""));
  EXPECT_TRUE(Shows(page, "deadline 60 s"));
  EXPECT_TRUE(Shows(page, "gone at 43.2 s"));
  EXPECT_TRUE(Shows(page, "1.125 GiB"));
  EXPECT_TRUE(Shows(page, "48.3 ms"));
}

TEST(PlanReportTest, IsTheSameEachTime) {
  EXPECT_EQ(ReportOf(ExampleEightCards()), ReportOf(ExampleEightCards()));
}

TEST(PlanReportTest, NamesAreTextWhateverTheyHold) {
  const std::string hostile = "</title><script>alert('1')</script>\"&\x01";
  Scenario scenario = ExampleEightCards();
  scenario.name = scenario.model_name = scenario.currency = hostile;
  for (CardGroup& group : scenario.groups) group.name = group.host = group.card.name = hostile;
  scenario.workload.classes[0].name = scenario.link.name = hostile;
  const std::string page = ReportOf(scenario);
  EXPECT_TRUE(Shows(page, "&lt;script&gt;alert(&#39;1&#39;)"));
  EXPECT_FALSE(Shows(page, "\x01"));
}

TEST(PlanReportTest, OneTypeHasABarForEachSplit) {
  Scenario scenario = ExampleEightCards();
  scenario.groups.resize(1);
  scenario.groups[0].count = 8;
  const std::string page = ReportOf(scenario);
  EXPECT_TRUE(Shows(page, "3 cards prefill: "));
  EXPECT_TRUE(Shows(page, "class=\"chosen\""));
}

TEST(PlanReportTest, ThreeTypesHaveAProfileEach) {
  Scenario scenario = ExampleEightCards();
  scenario.groups.push_back(ExampleGroup("H100", 989, 3350, 80));
  EXPECT_TRUE(Shows(ReportOf(scenario), "the other types being split as well as can be"));
}

TEST(PlanReportTest, OfOneTokenNothingSplitsAndNothingMoves) {
  Scenario scenario = ExampleEightCards();
  scenario.workload.classes[0].output = Tokens(1);
  const std::string page = ReportOf(scenario);
  EXPECT_FALSE(Shows(page, "of the cards</h2>"));
  EXPECT_FALSE(Shows(page, "state at its transfer"));
}

TEST(PlanReportTest, ShowsThatNothingFits) {
  Scenario scenario = ExampleEightCards();
  for (CardGroup& group : scenario.groups) group.card.memory = Bytes(8'000'000'000);
  const std::string page = ReportOf(scenario);
  EXPECT_TRUE(Shows(page, "Nothing meets the objective"));
  EXPECT_TRUE(Shows(page, ": too little"));
}

TEST(PlanReportTest, ShowsQueuesThatAreEmptyOrNeverEnd) {
  Scenario scenario = ExampleEightCards();
  scenario.workload.arrivals = ArrivalSchedule::Constant(PerSecond(0));
  ReportOf(scenario);
  scenario.startup = Seconds(0);
  scenario.objective = {};
  ReportOf(scenario);
  scenario.workload.arrivals = ArrivalSchedule::Constant(PerSecond(1e9));
  EXPECT_TRUE(Shows(ReportOf(scenario), "never gone"));
}

TEST(PlanReportTest, ThousandCardsStayReadable) {
  Scenario scenario = ExampleEightCards();
  scenario.groups.push_back(ExampleGroup("H100", 989, 3350, 80));
  scenario.groups.push_back(ExampleGroup("B200", 2250, 8000, 180));
  for (CardGroup& group : scenario.groups) group.count = 250;
  scenario.workload.arrivals = ArrivalSchedule::Constant(PerSecond(800));
  EXPECT_LT(ReportOf(scenario).size(), 200'000u);
}

TEST(PlanReportTest, GridOfThousandsOfSplitsIsDrawnByColour) {
  Scenario scenario = ExampleEightCards();
  for (CardGroup& group : scenario.groups) group.count = 140;
  const std::string page = ReportOf(scenario);
  EXPECT_TRUE(Shows(page, "<path class=\"h9\""));
}

TEST(PlanReportTest, OddSetsOfCards) {
  Scenario scenario = ExampleEightCards();
  scenario.groups[0].count = 0;
  ReportOf(scenario);
  scenario = ExampleEightCards();
  for (CardGroup& group : scenario.groups) group.tensor_parallel = 2;
  scenario.pool = StatePool{.capacity = Bytes(int64_t{64} << 30), .link = scenario.link};
  scenario.schemes = {Scheme::kPdPool};
  EXPECT_TRUE(Shows(ReportOf(scenario), "written to the pool"));
  scenario = ExampleEightCards();
  while (scenario.groups.size() < 16) {
    scenario.groups.push_back(ExampleGroup("C", 100 + 10.0 * scenario.groups.size(), 2000, 80));
    scenario.groups.back().name += std::to_string(scenario.groups.size());
  }
  ReportOf(scenario);
}

}  // namespace
}  // namespace divisi
