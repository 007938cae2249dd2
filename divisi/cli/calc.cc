#include "divisi/cli/calc.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "divisi/core/check.h"
#include "divisi/core/format.h"
#include "divisi/core/nearest.h"
#include "divisi/plan/flow.h"

namespace divisi {
namespace {

Result<double> ParseCount(std::string_view text) {
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || end != text.data() + text.size() || !std::isfinite(number) ||
      number < 0) {
    return Error{Code::kInvalidArgument,
                 Format("'{}' is not a finite number that is not negative", text)};
  }
  return number;
}

template <typename Quantity>
Result<double> NumberOf(Result<Quantity> quantity) {
  if (!quantity) return quantity.error();
  return static_cast<double>(quantity->value);
}

Result<double> ParseNumber(CalcUnit unit, std::string_view text) {
  switch (unit) {
    case CalcUnit::kBytes:
      return NumberOf(ParseBytes(text));
    case CalcUnit::kSeconds:
      return NumberOf(ParseSeconds(text));
    case CalcUnit::kBytesPerSecond:
      return NumberOf(ParseBytesPerSecond(text));
    case CalcUnit::kFlopsPerSecond:
      return NumberOf(ParseFlopsPerSecond(text));
    default:
      return ParseCount(text);
  }
}

Result<std::vector<double>> ParseCounts(std::string_view text) {
  std::vector<double> list;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    ASSIGN_OR_RETURN(const double number, ParseCount(text.substr(0, comma)));
    list.push_back(number);
    text = comma == std::string_view::npos ? "" : text.substr(comma + 1);
  }
  return list;
}

Result<void> CheckLimit(CalcLimit limit, double number) {
  const auto refused = [number](const char* expected) {
    return Error{Code::kInvalidArgument, Format("{} is not {}", number, expected)};
  };
  if (limit == CalcLimit::kPositive && number <= 0) return refused("above 0");
  if (limit == CalcLimit::kShare && number > 1) return refused("a share between 0 and 1");
  if (limit != CalcLimit::kWhole && limit != CalcLimit::kOneOrMore) return {};
  const double least = limit == CalcLimit::kOneOrMore ? 1 : 0;
  if (number != std::floor(number) || number < least || number > kMostCalcCount) {
    return refused(least > 0 ? "a whole number from 1 to 1e9" : "a whole number from 0 to 1e9");
  }
  return {};
}

// One number, or those of a list; none of a text.
Result<std::vector<double>> NumbersOf(const CalcInput& input, std::string_view text) {
  std::vector<double> numbers;
  if (input.unit == CalcUnit::kCounts) {
    ASSIGN_OR_RETURN(numbers, ParseCounts(text));
  } else if (input.unit != CalcUnit::kText) {
    ASSIGN_OR_RETURN(const double number, ParseNumber(input.unit, text));
    numbers.push_back(number);
  }
  for (const double number : numbers) RETURN_IF_ERROR(CheckLimit(input.limit, number));
  return numbers;
}

const char* UnitSuffix(CalcUnit unit) {
  switch (unit) {
    case CalcUnit::kBytes:
      return "_bytes";
    case CalcUnit::kSeconds:
      return "_seconds";
    case CalcUnit::kBytesPerSecond:
      return "_bytes_per_second";
    case CalcUnit::kFlops:
      return "_flops";
    case CalcUnit::kFlopsPerSecond:
      return "_flops_per_second";
    case CalcUnit::kPerSecond:
      return "_per_second";
    default:
      return "";
  }
}

std::string Human(double value, CalcUnit unit) {
  if (!std::isfinite(value)) return value > 0 ? "never" : "none";
  switch (unit) {
    case CalcUnit::kBytes:
      return HumanBytes(WholeBytes(value));
    case CalcUnit::kSeconds:
      return HumanSeconds(Seconds(value));
    case CalcUnit::kBytesPerSecond:
      return HumanRate(BytesPerSecond(value));
    case CalcUnit::kFlops:
      return HumanFlops(Flops(value));
    case CalcUnit::kFlopsPerSecond:
      return HumanRate(FlopsPerSecond(value));
    case CalcUnit::kPerSecond:
      return Format("{:.4g} /s", value);
    default:
      return Format("{:.6g}", value);
  }
}

Json JsonOf(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::string TableText(const CalcTable& table) {
  std::vector<std::vector<std::string>> cells = {{""}};
  for (const CalcFigure& column : table.columns) cells[0].push_back(column.label);
  for (size_t row = 0; row < table.rows.size(); ++row) {
    std::vector<std::string>& line = cells.emplace_back();
    line.push_back(table.row_names[row]);
    for (size_t i = 0; i < table.columns.size(); ++i) {
      line.push_back(Human(table.rows[row][i], table.columns[i].unit));
    }
  }
  std::vector<size_t> widths(cells[0].size());
  for (const auto& line : cells) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text = "\n" + table.title + "\n";
  for (const auto& line : cells) {
    for (size_t column = 0; column < line.size(); ++column) {
      text += column == 0 ? Format("  {:<{}}", line[column], widths[column])
                          : Format("  {:>{}}", line[column], widths[column]);
    }
    text += "\n";
  }
  return text;
}

}  // namespace

Result<CalcValues> CalcValues::Read(const std::vector<CalcInput>& inputs, const Catalog& catalog,
                                    const std::map<std::string, std::string>& given) {
  CalcValues values;
  values.catalog_ = &catalog;
  for (const CalcInput& input : inputs) {
    const auto found = given.find(input.name);
    const std::string& text = found == given.end() ? input.value : found->second;
    Value value{.unit = input.unit, .text = text};
    auto numbers = NumbersOf(input, text);
    if (!numbers) return WithContext(numbers.error(), Format("--{}", input.name));
    value.number = numbers->empty() ? 0 : numbers->front();
    value.list = std::move(*numbers);
    values.values_.emplace(input.name, std::move(value));
  }
  std::vector<std::string> names;
  for (const CalcInput& input : inputs) names.push_back(input.name);
  for (const auto& [name, text] : given) {
    if (values.values_.contains(name)) continue;
    return Error{Code::kNotFound,
                 Format("there is no input --{}{}", name, DidYouMean(name, names, "--"))};
  }
  return values;
}

const CalcValues::Value& CalcValues::Get(std::string_view name, CalcUnit unit) const {
  const auto found = values_.find(name);
  CHECK(found != values_.end() && found->second.unit == unit, "input {}", name);
  return found->second;
}

double CalcValues::Count(std::string_view name) const { return Get(name, CalcUnit::kCount).number; }
Bytes CalcValues::GetBytes(std::string_view name) const {
  return Bytes(std::llround(Get(name, CalcUnit::kBytes).number));
}
Seconds CalcValues::GetSeconds(std::string_view name) const {
  return Seconds(Get(name, CalcUnit::kSeconds).number);
}
BytesPerSecond CalcValues::GetBytesPerSecond(std::string_view name) const {
  return BytesPerSecond(Get(name, CalcUnit::kBytesPerSecond).number);
}
FlopsPerSecond CalcValues::GetFlopsPerSecond(std::string_view name) const {
  return FlopsPerSecond(Get(name, CalcUnit::kFlopsPerSecond).number);
}
PerSecond CalcValues::GetPerSecond(std::string_view name) const {
  return PerSecond(Get(name, CalcUnit::kPerSecond).number);
}
const std::string& CalcValues::Text(std::string_view name) const {
  return Get(name, CalcUnit::kText).text;
}
const std::vector<double>& CalcValues::Counts(std::string_view name) const {
  return Get(name, CalcUnit::kCounts).list;
}

CalcFigure FigureOf(std::string key, Bytes value, std::string label) {
  return {std::move(key), static_cast<double>(value.value), CalcUnit::kBytes, std::move(label)};
}
CalcFigure FigureOf(std::string key, Seconds value, std::string label) {
  return {std::move(key), value.value, CalcUnit::kSeconds, std::move(label)};
}
CalcFigure FigureOf(std::string key, BytesPerSecond value, std::string label) {
  return {std::move(key), value.value, CalcUnit::kBytesPerSecond, std::move(label)};
}
CalcFigure FigureOf(std::string key, Flops value, std::string label) {
  return {std::move(key), value.value, CalcUnit::kFlops, std::move(label)};
}
CalcFigure FigureOf(std::string key, FlopsPerSecond value, std::string label) {
  return {std::move(key), value.value, CalcUnit::kFlopsPerSecond, std::move(label)};
}
CalcFigure FigureOf(std::string key, PerSecond value, std::string label) {
  return {std::move(key), value.value, CalcUnit::kPerSecond, std::move(label)};
}
CalcFigure FigureOf(std::string key, double value, std::string label) {
  return {std::move(key), value, CalcUnit::kCount, std::move(label)};
}

const std::vector<CalcTopic>& CalcTopics() {
  static const std::vector<CalcTopic> all = [] {
    std::vector<CalcTopic> topics;
    for (auto area : {StateTopics, StageTopics, ExpertPathTopics, ExpertLoadTopics, CacheTopics,
                      LifecycleTopics}) {
      for (CalcTopic& topic : area()) topics.push_back(std::move(topic));
    }
    return topics;
  }();
  return all;
}

Result<CalcResult> RunCalc(std::string_view name, const Catalog& catalog,
                           const std::map<std::string, std::string>& given) {
  std::vector<std::string> names;
  for (const CalcTopic& topic : CalcTopics()) {
    names.push_back(topic.name);
    if (topic.name != name) continue;
    ASSIGN_OR_RETURN(const CalcValues values, CalcValues::Read(topic.inputs, catalog, given));
    return topic.run(values);
  }
  return Error{Code::kNotFound,
               Format("there is no calculation '{}'{}", name, DidYouMean(name, names, ""))};
}

Json CalcJson(std::string_view topic, const CalcResult& result) {
  Json out = Json::MakeObject();
  out.Set("topic", topic);
  Json figures = Json::MakeObject();
  for (const CalcFigure& figure : result.figures) {
    figures.Set(figure.key + UnitSuffix(figure.unit), JsonOf(figure.value));
  }
  out.Set("figures", std::move(figures));
  Json tables = Json::MakeObject();
  for (const CalcTable& table : result.tables) {
    Json rows = Json::MakeArray();
    for (size_t row = 0; row < table.rows.size(); ++row) {
      Json item = Json::MakeObject();
      item.Set("name", table.row_names[row]);
      for (size_t i = 0; i < table.columns.size(); ++i) {
        item.Set(table.columns[i].key + UnitSuffix(table.columns[i].unit),
                 JsonOf(table.rows[row][i]));
      }
      rows.Append(std::move(item));
    }
    tables.Set(table.key, std::move(rows));
  }
  out.Set("tables", std::move(tables));
  Json notes = Json::MakeArray();
  for (const std::string& note : result.notes) notes.Append(note);
  out.Set("notes", std::move(notes));
  return out;
}

std::string CalcText(const CalcResult& result) {
  size_t width = 0;
  for (const CalcFigure& figure : result.figures) width = std::max(width, figure.label.size());
  std::string text;
  for (const CalcFigure& figure : result.figures) {
    text += Format("{:<{}}  {}\n", figure.label, width, Human(figure.value, figure.unit));
  }
  for (const CalcTable& table : result.tables) text += TableText(table);
  if (!result.notes.empty()) text += "\n";
  for (const std::string& note : result.notes) text += note + "\n";
  return text;
}

}  // namespace divisi
