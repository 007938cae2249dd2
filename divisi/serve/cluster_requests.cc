#include "divisi/serve/cluster_requests.h"

#include <algorithm>
#include <utility>

namespace divisi {

void ClusterRequests::Begin(RequestId request, Engine::EventSink sink, int64_t prompt_tokens,
                            Seconds now) {
  live_[request] = {.sink = std::move(sink),
                    .timeline = {.arrived = now, .scheduled = now},
                    .prompt_tokens = prompt_tokens};
}

void ClusterRequests::NoteRoute(RequestId request, const std::string& route) {
  const auto found = live_.find(request);
  if (found == live_.end()) return;
  std::string& text = found->second.timeline.route;
  text += (text.empty() ? "" : " | ") + route;
}

void ClusterRequests::Take(DispatchEvent event, Seconds now) {
  const auto found = live_.find(event.request);
  if (found == live_.end()) return;
  Live& request = found->second;
  Timeline& timeline = request.timeline;
  timeline.cached_tokens = std::max(timeline.cached_tokens, event.cached_tokens);
  if (!event.tokens.empty() && timeline.first_token.value == 0) {
    timeline.first_token = now;
    counters_.prompt_tokens += request.prompt_tokens;
  }
  counters_.generated_tokens += static_cast<int64_t>(event.tokens.size());
  if (event.finish) {
    timeline.finished = now;
    ++counters_.finished[static_cast<size_t>(*event.finish)];
  }
  Telling telling{request.sink,
                  {.request = event.request,
                   .time = now,
                   .prompt_scores = std::move(event.prompt_scores),
                   .tokens = std::move(event.tokens),
                   .finish = event.finish,
                   .error = std::move(event.error),
                   .timeline = timeline}};
  if (event.finish) live_.erase(found);
  tellings_.push_back(std::move(telling));
}

std::vector<ClusterRequests::Telling> ClusterRequests::TakeTellings() {
  return std::exchange(tellings_, {});
}

}  // namespace divisi
