// What the fixed order of additions costs: our matrix product in turns with oneDNN's, which may add
// in any order and repacks the weights ahead (not counted), on one thread, in processor time.
//   OMP_NUM_THREADS=1 ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 onednn_bench   the same instruction
//   OMP_NUM_THREADS=1 onednn_bench [--tiny]                              what the processor has
//   (AMX)
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "divisi/core/format.h"
#include "divisi/core/thread_pool.h"
#include "divisi/model/ops.h"

namespace divisi {
namespace {

double ProcessorSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::vector<uint16_t> RandomBf16(int64_t count) {
  std::vector<uint16_t> values(static_cast<size_t>(count));
  uint64_t state = 88172645463325252u;
  for (uint16_t& value : values) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    value = static_cast<uint16_t>((state & 0x807f) | ((119 + (state >> 20) % 9) << 7));
  }
  return values;
}

// x [m, k] times w [n, k]^T with weights in the layout that oneDNN prefers.
class OneDnnProduct {
 public:
  OneDnnProduct(uint16_t* x, uint16_t* w, float* out, int64_t m, int64_t n, int64_t k)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using dnnl::memory;
    using Type = memory::data_type;
    using Tag = memory::format_tag;
    const memory::desc x_desc({m, k}, Type::bf16, Tag::ab);
    const memory::desc any({n, k}, Type::bf16, Tag::any);
    const memory::desc out_desc({m, n}, Type::f32, Tag::ab);
    const dnnl::inner_product_forward::desc operation(dnnl::prop_kind::forward_inference, x_desc,
                                                      any, out_desc);
    const dnnl::inner_product_forward::primitive_desc primitive(operation, engine_);
    memory plain({{n, k}, Type::bf16, Tag::ab}, engine_, w);
    memory packed(primitive.weights_desc(), engine_);
    dnnl::reorder(plain, packed).execute(stream_, plain, packed);
    stream_.wait();
    product_ = dnnl::inner_product_forward(primitive);
    arguments_ = {{DNNL_ARG_SRC, memory(x_desc, engine_, x)},
                  {DNNL_ARG_WEIGHTS, packed},
                  {DNNL_ARG_DST, memory(out_desc, engine_, out)}};
    implementation_ = primitive.impl_info_str();
  }
  void Run() {
    product_.execute(stream_, arguments_);
    stream_.wait();
  }
  const std::string& implementation() const { return implementation_; }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::inner_product_forward product_;
  std::unordered_map<int, dnnl::memory> arguments_;
  std::string implementation_;
};

template <typename Fn>
double Seconds(int repeats, Fn fn) {
  const double start = ProcessorSeconds();
  for (int i = 0; i < repeats; ++i) fn();
  return (ProcessorSeconds() - start) / repeats;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Compare(int64_t m, int64_t n, int64_t k, int rounds) {
  std::vector<uint16_t> x = RandomBf16(m * k), w = RandomBf16(n * k);
  std::vector<float> ours(static_cast<size_t>(m * n)), theirs(ours.size());
  ThreadPool pool(1);
  Ops ops(SupportedIsas().back(), pool);
  OneDnnProduct product(x.data(), w.data(), theirs.data(), m, n, k);
  const auto run = [&] {
    ops.MatMul({reinterpret_cast<std::byte*>(x.data()), ComputeType::kBf16, m, k},
               {reinterpret_cast<std::byte*>(w.data()), DataType::kBf16, n, k}, {ours.data(), m, n},
               {});
  };
  run();
  product.Run();
  for (size_t i = 0; i < ours.size(); ++i) {
    const double difference = static_cast<double>(ours[i]) - theirs[i];
    CHECK(std::abs(difference) < 0.02, "{} and {} at {}", ours[i], theirs[i], i);
  }
  const double flops = 2.0 * static_cast<double>(m * n * k);
  const int repeats = std::max(1, static_cast<int>(2e9 / flops));
  std::vector<double> our_seconds, their_seconds, ratio;
  for (int round = 0; round < rounds; ++round) {
    our_seconds.push_back(Seconds(repeats, run));
    their_seconds.push_back(Seconds(repeats, [&] { product.Run(); }));
    ratio.push_back(our_seconds.back() / their_seconds.back());
  }
  std::printf(
      "M=%-5ld N=%-6ld K=%-5ld ours %8.1f GFLOP/s, oneDNN %8.1f (%s): our time is %.2f of it\n",
      static_cast<long>(m), static_cast<long>(n), static_cast<long>(k),
      flops / Median(our_seconds) / 1e9, flops / Median(their_seconds) / 1e9,
      product.implementation().c_str(), Median(ratio));
  std::fflush(stdout);
}

}  // namespace
}  // namespace divisi

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--tiny") {
    divisi::Compare(3, 64, 64, 1);
    return 0;
  }
  for (const int64_t m : {1, 8, 32, 512, 2048}) {
    divisi::Compare(m, 3072, 1024, 5);
    divisi::Compare(m, 1024, 3072, 5);
  }
}
