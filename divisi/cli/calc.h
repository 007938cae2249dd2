// `divisi calc TOPIC`: one calculator for each piece of the analysis. A topic is a value: its
// inputs with their defaults (the chapter's example), its formula as text for --help, and a
// function from inputs to figures. Flags, --help, the table and the JSON are made from it here.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "divisi/catalog/catalog.h"
#include "divisi/core/json.h"
#include "divisi/core/result.h"
#include "divisi/core/units.h"

namespace divisi {

enum class CalcUnit {
  kCount,           // A plain number
  kBytes,           // "1.125 GiB"
  kSeconds,         // "5 us"
  kBytesPerSecond,  // "25 GB/s", "200 Gbit/s"
  kFlops,
  kFlopsPerSecond,  // "312 TFLOP/s"
  kPerSecond,       // Requests, batches per second
  kText,            // A name; inputs only
  kCounts,          // "32,16,8": inputs only
};

// What a number may be, besides finite and not negative.
enum class CalcLimit {
  kNone,
  kPositive,   // Above 0
  kShare,      // At most 1
  kWhole,      // A whole number, at most kMostCalcCount
  kOneOrMore,  // kWhole, and not 0
};
// Above any count of tokens, layers or requests, and such that their products with the bytes of a
// token stay within 64 bits.
inline constexpr double kMostCalcCount = 1e9;

// One flag.
struct CalcInput {
  std::string name;  // "prompt-tokens"
  CalcUnit unit = CalcUnit::kCount;
  std::string value;  // The default, as a user would write it.
  std::string help;
  CalcLimit limit = CalcLimit::kNone;  // Of a list, of each number.
};

// The inputs' values, read from their text by the unit's parser. Asking for a name or unit that the
// topic did not declare is a bug (CHECK).
class CalcValues {
 public:
  // Errors: kInvalidArgument, with the flag, for text that its unit's parser refuses, for what is
  // not a finite number, for a negative one and for one beyond the input's limit.
  static Result<CalcValues> Read(const std::vector<CalcInput>& inputs, const Catalog& catalog,
                                 const std::map<std::string, std::string>& given);

  double Count(std::string_view name) const;
  Bytes GetBytes(std::string_view name) const;
  Seconds GetSeconds(std::string_view name) const;
  BytesPerSecond GetBytesPerSecond(std::string_view name) const;
  FlopsPerSecond GetFlopsPerSecond(std::string_view name) const;
  PerSecond GetPerSecond(std::string_view name) const;
  const std::string& Text(std::string_view name) const;
  const std::vector<double>& Counts(std::string_view name) const;
  const Catalog& catalog() const { return *catalog_; }

 private:
  struct Value {
    CalcUnit unit;
    double number = 0;
    std::string text;
    std::vector<double> list;
  };
  const Value& Get(std::string_view name, CalcUnit unit) const;
  const Catalog* catalog_ = nullptr;
  std::map<std::string, Value, std::less<>> values_;
};

// One result. In JSON its name is `key` with the unit after it: "read" in seconds is
// "read_seconds"; counts stand bare.
struct CalcFigure {
  std::string key;
  double value = 0;
  CalcUnit unit = CalcUnit::kCount;
  std::string label;  // What it is, in words.
};
CalcFigure FigureOf(std::string key, Bytes value, std::string label);
CalcFigure FigureOf(std::string key, Seconds value, std::string label);
CalcFigure FigureOf(std::string key, BytesPerSecond value, std::string label);
CalcFigure FigureOf(std::string key, Flops value, std::string label);
CalcFigure FigureOf(std::string key, FlopsPerSecond value, std::string label);
CalcFigure FigureOf(std::string key, PerSecond value, std::string label);
CalcFigure FigureOf(std::string key, double value, std::string label);

// Rows of figures of the same columns. A row's own name is its first column.
struct CalcTable {
  std::string key;
  std::string title;
  std::vector<std::string> row_names;
  std::vector<CalcFigure> columns;  // key, unit, label; value unused
  std::vector<std::vector<double>> rows;
};

struct CalcResult {
  std::vector<CalcFigure> figures;
  std::vector<CalcTable> tables;
  std::vector<std::string> notes;  // Sentences: what the figures say.
};

struct CalcTopic {
  std::string name;     // "kv-size"
  std::string summary;  // One line
  std::string formula;  // For --help: the formulas with their symbols, and the source
  std::vector<CalcInput> inputs;
  Result<CalcResult> (*run)(const CalcValues& values) = nullptr;
};

// All topics, in the order of --help.
const std::vector<CalcTopic>& CalcTopics();

// Runs a topic with some inputs replaced. Errors: kNotFound for an unknown topic or flag, with the
// nearest; those of CalcValues::Read and of the topic.
Result<CalcResult> RunCalc(std::string_view topic, const Catalog& catalog,
                           const std::map<std::string, std::string>& given);

// {"topic": ..., "figures": {"read_seconds": 0.048, ...}, "tables": {key: [{...}]}, "notes": [...]}
Json CalcJson(std::string_view topic, const CalcResult& result);
std::string CalcText(const CalcResult& result);

// Topics by area, each in a file of its own.
std::vector<CalcTopic> StateTopics();       // calc_state.cc: kv-size, kv-transfer
std::vector<CalcTopic> StageTopics();       // calc_stages.cc: stage-rates, pd-split
std::vector<CalcTopic> ExpertPathTopics();  // calc_expert_paths.cc: af-transfer, expert-path,
                                            // expert-reuse, expert-pipeline
std::vector<CalcTopic> ExpertLoadTopics();  // calc_expert_load.cc: expert-skew, expert-replicas,
                                            // grouped-gemm-padding
std::vector<CalcTopic> CacheTopics();       // calc_cache.cc: kv-tiers, kv-reuse, kv-restart,
                                            // kv-trace, route
std::vector<CalcTopic> LifecycleTopics();   // calc_lifecycle.cc: startup, migrate, recover, cost

}  // namespace divisi
