// The members of an object that a gateway answered, by type: one of another release may have other
// keys. The first fault is kept (kUnimplemented, "workers[0].held is missing"), and reading goes on
// with zeros.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "divisi/core/format.h"
#include "divisi/core/json.h"
#include "divisi/core/result.h"

namespace divisi {

class JsonMembers {
 public:
  JsonMembers(const Json& object, std::string path, std::optional<Error>& fault)
      : object_(object), path_(std::move(path)), fault_(fault) {}

  std::string Text(const char* key) const {
    const Json* value = Of(key, "a string", &Json::is_string);
    return value != nullptr ? value->as_string() : std::string();
  }
  bool Flag(const char* key) const {
    const Json* value = Of(key, "a boolean", &Json::is_bool);
    return value != nullptr && value->as_bool();
  }
  int64_t Whole(const char* key) const {
    const Json* value = Of(key, "an integer", &Json::is_int);
    return value != nullptr ? value->as_int() : 0;
  }
  double Number(const char* key) const {
    const Json* value = Of(key, "a number", &Json::is_number);
    return value != nullptr ? value->as_double() : 0;
  }
  // What the gateway has not heard is null: `absent`.
  std::string WholeOr(const char* key, const char* absent) const {
    const Json* value = object_.Find(key);
    if (value != nullptr && value->is_null()) return absent;
    return Format("{}", Whole(key));
  }
  // Of the list's objects; none where it is no list.
  std::vector<JsonMembers> Each(const char* key) const {
    std::vector<JsonMembers> all;
    const Json* list = Of(key, "an array", &Json::is_array);
    if (list == nullptr) return all;
    for (const Json& each : list->as_array()) {
      all.emplace_back(each, Format("{}{}[{}].", path_, key, all.size()), fault_);
    }
    return all;
  }
  std::optional<JsonMembers> Find(const char* key) const {
    const Json* object = object_.Find(key);
    if (object == nullptr || object->is_null()) return std::nullopt;
    return JsonMembers(*object, Format("{}{}.", path_, key), fault_);
  }

 private:
  const Json* Of(const char* key, const char* wanted, bool (Json::*is)() const) const {
    const Json* value = object_.Find(key);
    if (value != nullptr && (value->*is)()) return value;
    if (!fault_) {
      const std::string what = value == nullptr
                                   ? std::string("is missing")
                                   : Format("is {} instead of {}", value->TypeName(), wanted);
      fault_ = Error{Code::kUnimplemented, Format("{}{} {}", path_, key, what)};
    }
    return nullptr;
  }

  const Json& object_;
  std::string path_;
  std::optional<Error>& fault_;
};

}  // namespace divisi
