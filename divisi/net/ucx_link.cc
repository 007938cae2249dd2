#include "divisi/net/ucx_link.h"

#include <ucp/api/ucp.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>
#include <unordered_map>
#include <utility>

#include "divisi/core/clock.h"
#include "divisi/net/socket_address.h"

namespace divisi {
namespace {

constexpr unsigned kMessageId = 1;
// Below this a copy at the receiver is cheaper than the round trip of a rendezvous: of 32 KiB by
// half over loopback TCP, of 64 KiB no longer (bench/RESULTS.md).
constexpr size_t kRendezvousBytes = 64 << 10;
// Rounds of UCX's own progress in one Progress, so that the caller's loop turns.
constexpr int kProgressRounds = 256;
// While bytes are under way and nothing happens, Progress looks again for this long before its
// caller sleeps: to be woken by every piece cost loopback TCP a fifth (bench/RESULTS.md). It yields
// between looks, so that on a busy machine who computes goes first.
constexpr Seconds kLookAgain{200e-6};
// Connection attempts that wait for Progress. More are refused: a cluster's workers are fewer.
constexpr size_t kMaxAccepting = 1024;

Error UcxError(Code code, const char* what, ucs_status_t status) {
  return {code, Format("UCX: {}: {}", what, ucs_status_string(status))};
}

class UcxLink final : public Link {
 public:
  ~UcxLink() override;
  Result<void> Open(const TransportOptions& options);

  const std::string& address() const override { return address_; }
  Result<void> Register(std::span<std::byte> memory) override;
  Result<LinkId> Dial(const std::string& address) override;
  void Send(LinkId id, std::string header, std::span<const std::byte> body,
            uint64_t token) override;
  void Close(LinkId id, const std::string& reason) override;
  size_t open_links() const override { return links_.size(); }
  std::vector<LinkEvent> Progress(const Place& place) override;
  bool Arm() override;
  int fd() const override { return fd_; }
  std::optional<Seconds> NextDue() const override { return std::nullopt; }

 private:
  // A send or a receive that UCX has not called back. Owned by operations_.
  struct Operation {
    UcxLink* owner = nullptr;
    LinkId link = 0;
    bool receive = false;
    uint64_t token = 0;
    size_t bytes = 0;
    std::string header;  // UCX reads a send's until it calls back.
  };
  struct Connection {
    ucp_ep_h endpoint = nullptr;  // Null once it is being closed.
    ucs_status_ptr_t closing = nullptr;
    int operations = 0;
    bool broken = false;  // UCX said so; Progress closes it.
    std::string reason;
  };

  Result<void> OpenWorker(const SocketAddress& listen);
  // The port. Errors: as of OpenUcxLink.
  Result<int> Listen(const SocketAddress& address);
  Result<LinkId> Create(ucp_ep_params_t params);
  void Advance();
  void LookAgain();
  void AcceptAll();
  void CloseEndpoint(Connection& link);
  void EndLinks();
  ucs_status_t Receive(const void* header, size_t header_bytes, void* data, size_t bytes,
                       const ucp_am_recv_param_t& param);
  ucs_status_t StartReceive(Operation operation, void* data, std::byte* to);
  Operation* Begin(Operation operation);
  void Finish(Operation* operation, bool ok);

  static ucs_status_t OnMessage(void* arg, const void* header, size_t header_bytes, void* data,
                                size_t bytes, const ucp_am_recv_param_t* param);
  static void OnSent(void* request, ucs_status_t status, void* operation);
  static void OnReceived(void* request, ucs_status_t status, size_t bytes, void* operation);
  static void OnBroken(void* arg, ucp_ep_h endpoint, ucs_status_t status);
  static void OnConnection(ucp_conn_request_h request, void* arg);

  const SteadyClock clock_{};
  const Place* place_ = nullptr;  // While Progress runs.
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_listener_h listener_ = nullptr;
  int fd_ = -1;
  std::string address_;
  std::vector<ucp_mem_h> memory_;
  std::vector<ucp_conn_request_h> accepting_;
  std::map<LinkId, Connection> links_;
  std::unordered_map<ucp_ep_h, LinkId> by_endpoint_;
  std::unordered_map<Operation*, std::unique_ptr<Operation>> operations_;
  std::vector<LinkEvent> events_;
  LinkId last_link_ = 0;
};

UcxLink::~UcxLink() {
  if (listener_ != nullptr) ucp_listener_destroy(listener_);
  for (auto& [id, link] : links_) {
    if (link.endpoint != nullptr) CloseEndpoint(link);
  }
  // UCX frees what is left with the worker.
  for (int i = 0; i < kProgressRounds && !links_.empty(); ++i) {
    while (ucp_worker_progress(worker_) != 0) {
    }
    EndLinks();
  }
  for (const ucp_mem_h handle : memory_) ucp_mem_unmap(context_, handle);
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

Result<void> UcxLink::OpenWorker(const SocketAddress& listen) {
  // A worker that comes back on its port must not wait for TIME_WAIT to end. UCX reads this one
  // option from the environment only; a user's own choice stands.
  setenv("UCX_TCP_CM_REUSEADDR", "y", 0);
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return UcxError(Code::kInvalidArgument, "settings UCX_*", status);
  // UCX opens a port of its own on every device that it may use, and whoever reaches one can write
  // anywhere in this process: its TCP puts carry an address and no right. Where only this host is
  // to reach us, no other device gets one.
  if (listen.IsLoopback() && getenv("UCX_NET_DEVICES") == nullptr) {
    (void)ucp_config_modify(config, "NET_DEVICES", "lo");
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  status = ucp_init(&params, config, &context_);
  ucp_config_release(config);
  if (status != UCS_OK) {
    return UcxError(Code::kUnavailable, "start (does UCX_TLS name a transport of this host?)",
                    status);
  }
  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
  status = ucp_worker_create(context_, &worker_params, &worker_);
  if (status != UCS_OK) return UcxError(Code::kUnavailable, "create a worker", status);
  status = ucp_worker_get_efd(worker_, &fd_);
  if (status != UCS_OK) return UcxError(Code::kInternal, "event descriptor", status);
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessageId;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = OnMessage;
  handler.arg = this;
  status = ucp_worker_set_am_recv_handler(worker_, &handler);
  if (status != UCS_OK) return UcxError(Code::kInternal, "message handler", status);
  return {};
}

Result<int> UcxLink::Listen(const SocketAddress& address) {
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr = {.addr = address.get(), .addrlen = address.length};
  params.conn_handler = {.cb = OnConnection, .arg = this};
  ucs_status_t status = ucp_listener_create(worker_, &params, &listener_);
  if (status == UCS_ERR_BUSY) {
    return Error{Code::kUnavailable,
                 Format("{} is taken by another process: choose another port, or 0 for a free one",
                        address.Text())};
  }
  if (status != UCS_OK) {
    return Error{Code::kInvalidArgument,
                 Format("cannot listen on {} ({}): is it an address of this host?", address.Text(),
                        ucs_status_string(status))};
  }
  ucp_listener_attr_t attributes{};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  status = ucp_listener_query(listener_, &attributes);
  if (status != UCS_OK) return UcxError(Code::kInternal, "listener's address", status);
  return SocketAddress{attributes.sockaddr, sizeof(attributes.sockaddr)}.port();
}

Result<LinkId> UcxLink::Create(ucp_ep_params_t params) {
  params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {.cb = OnBroken, .arg = this};
  ucp_ep_h endpoint = nullptr;
  const ucs_status_t status = ucp_ep_create(worker_, &params, &endpoint);
  if (status != UCS_OK) return UcxError(Code::kUnavailable, "connect", status);
  const LinkId id = ++last_link_;
  links_[id].endpoint = endpoint;
  by_endpoint_[endpoint] = id;
  return id;
}

void UcxLink::AcceptAll() {
  for (const ucp_conn_request_h request : std::exchange(accepting_, {})) {
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
    params.conn_request = request;
    const auto link = Create(params);  // The peer learns of a failure by its own error.
    if (link) events_.push_back({.kind = LinkEvent::Kind::kAccepted, .link = *link});
  }
}

void UcxLink::CloseEndpoint(Connection& link) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  by_endpoint_.erase(link.endpoint);
  link.closing = ucp_ep_close_nbx(std::exchange(link.endpoint, nullptr), &param);
}

void UcxLink::EndLinks() {
  for (auto it = links_.begin(); it != links_.end();) {
    Connection& link = it->second;
    if (link.broken && link.endpoint != nullptr) CloseEndpoint(link);
    if (UCS_PTR_IS_PTR(link.closing) && ucp_request_check_status(link.closing) != UCS_INPROGRESS) {
      ucp_request_free(std::exchange(link.closing, nullptr));
    }
    if (link.endpoint != nullptr || UCS_PTR_IS_PTR(link.closing) || link.operations > 0) {
      ++it;
      continue;
    }
    events_.push_back(
        {.kind = LinkEvent::Kind::kClosed, .link = it->first, .reason = std::move(link.reason)});
    it = links_.erase(it);
  }
}

UcxLink::Operation* UcxLink::Begin(Operation operation) {
  auto owned = std::make_unique<Operation>(std::move(operation));
  owned->owner = this;
  Operation* const pointer = owned.get();
  ++links_.at(pointer->link).operations;
  operations_.emplace(pointer, std::move(owned));
  return pointer;
}

void UcxLink::Finish(Operation* operation, bool ok) {
  const auto found = operations_.find(operation);
  CHECK(found != operations_.end(), "UCX called back twice");
  LinkEvent event{.kind = operation->receive ? LinkEvent::Kind::kMessage : LinkEvent::Kind::kSent,
                  .link = operation->link,
                  .token = operation->token,
                  .ok = ok,
                  .bytes = operation->bytes};
  if (operation->receive) event.header = std::move(operation->header);
  events_.push_back(std::move(event));
  --links_.at(operation->link).operations;
  operations_.erase(found);
}

ucs_status_t UcxLink::Receive(const void* header, size_t header_bytes, void* data, size_t bytes,
                              const ucp_am_recv_param_t& param) {
  // Every message asks for a reply endpoint, which is the link's own. No link: it is being closed.
  const bool named = (param.recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0;
  const auto found = by_endpoint_.find(named ? param.reply_ep : nullptr);
  if (found == by_endpoint_.end()) return UCS_OK;
  Operation operation{.link = found->second, .receive = true, .bytes = bytes};
  if (header_bytes > 0) operation.header.assign(static_cast<const char*>(header), header_bytes);
  std::byte* const to =
      bytes == 0 || place_ == nullptr ? nullptr : (*place_)(found->second, operation.header, bytes);
  if (bytes > 0 && to == nullptr) return UCS_OK;
  if ((param.recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    return StartReceive(std::move(operation), data, to);
  }
  if (bytes > 0) std::memcpy(to, data, bytes);
  Finish(Begin(std::move(operation)), true);
  return UCS_OK;
}

ucs_status_t UcxLink::StartReceive(Operation operation, void* data, std::byte* to) {
  Operation* const begun = Begin(std::move(operation));
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = OnReceived;
  param.user_data = begun;
  const ucs_status_ptr_t request = ucp_am_recv_data_nbx(worker_, data, to, begun->bytes, &param);
  if (!UCS_PTR_IS_PTR(request)) Finish(begun, UCS_PTR_STATUS(request) == UCS_OK);
  return UCS_OK;
}

ucs_status_t UcxLink::OnMessage(void* arg, const void* header, size_t header_bytes, void* data,
                                size_t bytes, const ucp_am_recv_param_t* param) {
  return static_cast<UcxLink*>(arg)->Receive(header, header_bytes, data, bytes, *param);
}

void UcxLink::OnSent(void* request, ucs_status_t status, void* operation) {
  auto* const begun = static_cast<Operation*>(operation);
  begun->owner->Finish(begun, status == UCS_OK);
  ucp_request_free(request);
}

void UcxLink::OnReceived(void* request, ucs_status_t status, size_t bytes, void* operation) {
  auto* const begun = static_cast<Operation*>(operation);
  begun->owner->Finish(begun, status == UCS_OK && bytes == begun->bytes);
  ucp_request_free(request);
}

void UcxLink::OnBroken(void* arg, ucp_ep_h endpoint, ucs_status_t status) {
  auto* const state = static_cast<UcxLink*>(arg);
  const auto found = state->by_endpoint_.find(endpoint);
  if (found == state->by_endpoint_.end()) return;
  Connection& link = state->links_.at(found->second);
  link.broken = true;
  if (link.reason.empty()) link.reason = ucs_status_string(status);
}

void UcxLink::OnConnection(ucp_conn_request_h request, void* arg) {
  auto* const state = static_cast<UcxLink*>(arg);
  if (state->accepting_.size() < kMaxAccepting) {
    state->accepting_.push_back(request);
  } else {
    (void)ucp_listener_reject(state->listener_, request);
  }
}

Result<void> UcxLink::Open(const TransportOptions& options) {
  ASSIGN_OR_RETURN(const SocketAddress listen, ParseSocketAddress(options.listen));
  if (listen.IsWildcard() && options.advertise.empty()) {
    return Error{Code::kInvalidArgument,
                 Format("{} is every interface of this host, which peers can't connect to: name "
                        "the address that they reach, or also the host to advertise",
                        listen.Text())};
  }
  RETURN_IF_ERROR(OpenWorker(listen));
  ASSIGN_OR_RETURN(const int port, Listen(listen));
  const std::string text = listen.Text();
  address_ = options.advertise.empty() ? Format("{}:{}", text.substr(0, text.rfind(':')), port)
                                       : HostAndPort(options.advertise, port);
  ASSIGN_OR_RETURN(const SocketAddress advertised, ParseSocketAddress(address_));
  if (!advertised.IsWildcard()) return {};
  return Error{Code::kInvalidArgument,
               Format("{} can't be advertised: peers can't connect to it", address_)};
}

Result<void> UcxLink::Register(std::span<std::byte> memory) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.address = memory.data();
  params.length = memory.size();
  // Pages are taken as they are first written, where the transport lets them.
  params.flags = UCP_MEM_MAP_NONBLOCK;
  ucp_mem_h handle = nullptr;
  const ucs_status_t status = ucp_mem_map(context_, &params, &handle);
  if (status != UCS_OK) {
    return UcxError(Code::kResourceExhausted,
                    "register memory (raise `ulimit -l`, or give the pool less)", status);
  }
  memory_.push_back(handle);
  return {};
}

Result<LinkId> UcxLink::Dial(const std::string& address) {
  ASSIGN_OR_RETURN(const SocketAddress to, ParseSocketAddress(address));
  if (to.IsWildcard() || to.port() == 0) {
    return Error{Code::kInvalidArgument, Format("{} is no address to connect to", address)};
  }
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr = {.addr = to.get(), .addrlen = to.length};
  return Create(params);
}

void UcxLink::Send(LinkId id, std::string header, std::span<const std::byte> body, uint64_t token) {
  const auto found = links_.find(id);
  if (found == links_.end() || found->second.endpoint == nullptr || found->second.broken) {
    events_.push_back({.kind = LinkEvent::Kind::kSent, .link = id, .token = token, .ok = false});
    return;
  }
  Operation* const begun =
      Begin({.link = id, .token = token, .bytes = body.size(), .header = std::move(header)});
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.cb.send = OnSent;
  param.user_data = begun;
  param.flags = UCP_AM_SEND_FLAG_REPLY;
  param.flags |= body.size() >= kRendezvousBytes ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER;
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(found->second.endpoint, kMessageId, begun->header.data(),
                      begun->header.size(), body.data(), body.size(), &param);
  if (!UCS_PTR_IS_PTR(request)) Finish(begun, UCS_PTR_STATUS(request) == UCS_OK);
}

void UcxLink::Close(LinkId id, const std::string& reason) {
  const auto found = links_.find(id);
  if (found == links_.end() || found->second.endpoint == nullptr) return;
  if (found->second.reason.empty()) found->second.reason = reason;
  CloseEndpoint(found->second);
}

void UcxLink::Advance() {
  for (int i = 0; i < kProgressRounds && ucp_worker_progress(worker_) != 0; ++i) {
  }
}

void UcxLink::LookAgain() {
  for (const Seconds end = clock_.Now() + kLookAgain; events_.empty() && clock_.Now() < end;) {
    std::this_thread::yield();
    Advance();
  }
}

std::vector<LinkEvent> UcxLink::Progress(const Place& place) {
  place_ = &place;
  Advance();
  if (events_.empty() && !operations_.empty()) LookAgain();
  place_ = nullptr;
  AcceptAll();
  EndLinks();
  return std::exchange(events_, {});
}

bool UcxLink::Arm() {
  return events_.empty() && accepting_.empty() && ucp_worker_arm(worker_) == UCS_OK;
}

}  // namespace

Result<std::unique_ptr<Link>> OpenUcxLink(const TransportOptions& options) {
  auto link = std::make_unique<UcxLink>();
  RETURN_IF_ERROR(link->Open(options));
  return std::unique_ptr<Link>(std::move(link));
}

}  // namespace divisi
