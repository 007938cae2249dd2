// Jinja's filters over sequences and dictionaries; a part of FindFilter's table.
#pragma once

#include "divisi/model/jinja_builtins.h"

namespace divisi {

// nullptr when there is none of that name.
const JinjaFilter* FindSequenceFilter(std::string_view name);

}  // namespace divisi
