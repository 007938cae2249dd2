// What an operator asks of a gateway (`divisi cluster`), and the answer.
#pragma once

#include <string>
#include <vector>

#include "divisi/control/dispatcher.h"
#include "divisi/control/registry.h"

namespace divisi {

// "status", "drain NAME [TIME]", "undrain NAME", "role NAME ROLE": the status afterwards, as JSON.
// Errors: kNotFound for a worker that is not there; kInvalidArgument for other words, with these.
Result<std::string> AnswerQuery(const std::vector<std::string>& words, Dispatcher& dispatcher,
                                Registry& registry, Seconds now);

}  // namespace divisi
