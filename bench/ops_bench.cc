// Matrix products and attention of a Qwen3-0.6B-shaped model against what the machine can do,
// measured in turns with them: medians of rates, and of the ratios of neighbours in time.
//   ops_bench [--tiny] [--threads N] [--cpu-time] [--isa NAME] [--rounds N] [matmul] [attention]
// --cpu-time counts the time that the processor gave this process: what can be said on a machine
// that others keep busy. It takes one thread, because waiting threads would count.
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "divisi/core/clock.h"
#include "divisi/core/random.h"
#include "divisi/model/machine_peaks.h"
#include "divisi/model/ops.h"

namespace divisi {
namespace {

struct Settings {
  bool tiny = false;
  bool cpu_time = false;
  int threads = 2;
  int rounds = 7;
  Isa isa = SupportedIsas().back();
  std::vector<std::string> sections;
  bool Wants(const char* section) const {
    return sections.empty() ||
           std::find(sections.begin(), sections.end(), section) != sections.end();
  }
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Random bf16 numbers between 2^-8 and 2 in magnitude, on small pages as a mapped file has them.
class RandomBf16 {
 public:
  explicit RandomBf16(int64_t count) : bytes_(static_cast<size_t>(count) * 2) {
    void* data = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(data != MAP_FAILED, "no {} bytes", bytes_);
    (void)madvise(data, bytes_, MADV_NOHUGEPAGE);
    data_ = static_cast<uint16_t*>(data);
    uint64_t state = 88172645463325252u;
    for (int64_t i = 0; i < count; ++i) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      const uint64_t exponent = 119 + (state >> 20) % 9;
      data_[i] = static_cast<uint16_t>((state & 0x807f) | (exponent << 7));
    }
  }
  ~RandomBf16() { munmap(data_, bytes_); }
  RandomBf16(const RandomBf16&) = delete;
  RandomBf16& operator=(const RandomBf16&) = delete;
  std::byte* at(int64_t element) const { return reinterpret_cast<std::byte*>(data_ + element); }

 private:
  size_t bytes_;
  uint16_t* data_;
};

class ProcessorClock final : public Clock {
 public:
  Seconds Now() const override {
    timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return Seconds(static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec));
  }
};

struct Shape {
  int layers, hidden, heads, kv_heads, dim, intermediate, vocab;
};
constexpr Shape kQwen06b = {28, 1024, 16, 8, 128, 3072, 151936};
constexpr Shape kTiny = {2, 128, 4, 2, 32, 384, 2048};

// [rows, cols] of every matrix of a model, the head last.
std::vector<WeightMatrix> Matrices(const Shape& s, int layers, const RandomBf16& memory) {
  std::vector<WeightMatrix> all;
  int64_t offset = 0;
  const auto add = [&](int64_t rows, int64_t cols) {
    all.push_back({memory.at(offset), DataType::kBf16, rows, cols});
    offset += rows * cols;
  };
  for (int layer = 0; layer < layers; ++layer) {
    add(s.heads * s.dim, s.hidden);
    add(s.kv_heads * s.dim, s.hidden);
    add(s.kv_heads * s.dim, s.hidden);
    add(s.hidden, s.heads * s.dim);
    add(s.intermediate, s.hidden);
    add(s.intermediate, s.hidden);
    add(s.hidden, s.intermediate);
  }
  add(s.vocab, s.hidden);
  return all;
}

int64_t Parameters(const Shape& s, int layers) {
  int64_t sum = 0;
  const RandomBf16 none(1);
  for (const WeightMatrix& w : Matrices(s, layers, none)) sum += w.rows * w.cols;
  return sum;
}

struct Context {
  const Settings& settings;
  std::unique_ptr<Clock> owned_clock;
  const Clock& clock;
  ThreadPool pool;
  Ops ops;
  ReadBuffer buffer;
  explicit Context(const Settings& s)
      : settings(s),
        owned_clock(s.cpu_time ? std::unique_ptr<Clock>(new ProcessorClock)
                               : std::make_unique<SteadyClock>()),
        clock(*owned_clock),
        pool(s.threads),
        ops(s.isa, pool),
        buffer(*ReadBuffer::Create(s.tiny ? int64_t{8} << 20 : ReadBuffer::kBytes)) {}

  // Runs `pass` in turns with both peaks and prints a line.
  template <typename Fn>
  void Report(const char* name, double bytes, double flops, Fn pass) {
    std::vector<double> seconds, bandwidth, peak, of_bandwidth, of_peak;
    pass();
    for (int round = 0; round < settings.rounds; ++round) {
      const double read_before = buffer.MeasureBandwidth(settings.isa, pool, clock);
      const double peak_before = MeasureMatrixPeak(settings.isa, pool, clock);
      const Seconds start = clock.Now();
      pass();
      const double elapsed = (clock.Now() - start).value;
      const double read = (read_before + buffer.MeasureBandwidth(settings.isa, pool, clock)) / 2;
      const double matrix = (peak_before + MeasureMatrixPeak(settings.isa, pool, clock)) / 2;
      seconds.push_back(elapsed);
      bandwidth.push_back(read);
      peak.push_back(matrix);
      of_bandwidth.push_back(bytes / elapsed / read);
      of_peak.push_back(flops / elapsed / matrix);
    }
    std::printf(
        "%-26s %9.3f ms  %6.1f GB/s of %5.1f = %5.1f %%   %7.1f GFLOP/s of %6.1f = %5.1f %%\n",
        name, Median(seconds) * 1e3, bytes / Median(seconds) / 1e9, Median(bandwidth) / 1e9,
        100 * Median(of_bandwidth), flops / Median(seconds) / 1e9, Median(peak) / 1e9,
        100 * Median(of_peak));
    std::fflush(stdout);
  }
};

void BenchMatMul(Context& context) {
  const Shape shape = context.settings.tiny ? kTiny : kQwen06b;
  const RandomBf16 weights(Parameters(shape, shape.layers));
  const std::vector<int64_t> batches =
      context.settings.tiny ? std::vector<int64_t>{1, 5}
                            : std::vector<int64_t>{1, 2, 4, 8, 16, 32, 128, 512, 2048};
  for (const int64_t m : batches) {
    // Beyond 32 rows a few layers do: compute, not memory, is the limit. The head runs on one row
    // per sequence, so not at all there.
    const int layers = m <= 32 ? shape.layers : 2;
    std::vector<WeightMatrix> matrices = Matrices(shape, layers, weights);
    if (m > 32) matrices.pop_back();
    int64_t widest = 0, tallest = 0, parameters = 0;
    for (const WeightMatrix& w : matrices) {
      widest = std::max(widest, w.cols), tallest = std::max(tallest, w.rows);
      parameters += w.rows * w.cols;
    }
    const RandomBf16 x(m * widest);
    std::vector<float> out(static_cast<size_t>(m * tallest));
    context.Report(Format("matmul M={}", m).c_str(), 2.0 * static_cast<double>(parameters),
                   2.0 * static_cast<double>(parameters * m), [&] {
                     for (const WeightMatrix& w : matrices) {
                       context.ops.MatMul({x.at(0), ComputeType::kBf16, m, w.cols}, w,
                                          {out.data(), m, w.rows}, {});
                     }
                   });
  }
}

// `batch` sequences of `rows` new rows each, the last at position context - 1.
void BenchAttention(Context& context, int64_t batch, int64_t rows, int64_t length) {
  const Shape shape = context.settings.tiny ? kTiny : kQwen06b;
  const int layers = rows == 1 ? shape.layers : 2;
  const int64_t pages_each = PagesFor(length);
  KvPages pages = *KvPages::Create({.layers = layers,
                                    .kv_heads = shape.kv_heads,
                                    .head_dim = shape.dim,
                                    .type = ComputeType::kBf16},
                                   batch * pages_each);
  const int64_t elements = batch * pages_each * pages.layout().PageBytes() / 2;
  const int64_t width = shape.heads * shape.dim;
  const RandomBf16 fill(std::min<int64_t>(elements, 1 << 20)), q(batch * rows * width),
      out(batch * rows * width);
  for (int64_t i = 0; i < elements; i += 1 << 20) {
    const size_t count = static_cast<size_t>(std::min<int64_t>(elements - i, 1 << 20));
    std::memcpy(pages.Head(0, 0, 0) + 2 * i, fill.at(0), 2 * count);
  }
  std::vector<std::vector<BlockId>> ids(static_cast<size_t>(batch));
  std::vector<SequenceRows> sequences;
  Random random(1);
  for (int64_t i = 0; i < batch * pages_each; ++i) {
    ids[static_cast<size_t>(i % batch)].push_back(static_cast<BlockId>(i));  // Interleaved
  }
  for (int64_t i = 0; i < batch; ++i) {
    sequences.push_back({i * rows, rows, length - rows, ids[static_cast<size_t>(i)]});
  }
  const double positions =
      static_cast<double>(rows) * static_cast<double>(2 * length - rows + 1) / 2;
  const double bytes =
      static_cast<double>(batch * length * layers) * 4.0 * shape.kv_heads * shape.dim;
  const double flops = static_cast<double>(batch * layers * width) * 4.0 * positions;
  context.Report(
      Format("attention B={} T={} ctx={}", batch, rows, length).c_str(), bytes, flops, [&] {
        for (int layer = 0; layer < layers; ++layer) {
          context.ops.Attention({q.at(0), ComputeType::kBf16, batch * rows, width},
                                {.pages = pages, .layer = layer, .sequences = sequences},
                                {out.at(0), ComputeType::kBf16, batch * rows, width});
        }
      });
}

void Main(const Settings& settings) {
  Context context(settings);
  std::printf("isa %s, threads %d, medians of %d rounds, %s time\n", IsaName(settings.isa),
              settings.threads, settings.rounds, settings.cpu_time ? "processor" : "wall");
  if (settings.Wants("matmul")) BenchMatMul(context);
  if (settings.Wants("attention") && settings.tiny) {
    BenchAttention(context, 2, 1, 40);
    BenchAttention(context, 1, 20, 40);
  } else if (settings.Wants("attention")) {
    BenchAttention(context, 1, 1, 512);
    BenchAttention(context, 32, 1, 512);
    BenchAttention(context, 1, 1, 8192);
    BenchAttention(context, 1, 512, 512);
    BenchAttention(context, 1, 2048, 2048);
  }
}

}  // namespace
}  // namespace divisi

int main(int argc, char** argv) {
  divisi::Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const bool has_value = i + 1 < argc;
    if (arg == "--tiny") {
      settings.tiny = true;
      settings.rounds = 1;
    } else if (arg == "--cpu-time") {
      settings.cpu_time = true;
      settings.threads = 1;
    } else if (arg == "--threads" && has_value) {
      settings.threads = std::atoi(argv[++i]);
    } else if (arg == "--rounds" && has_value) {
      settings.rounds = std::atoi(argv[++i]);
    } else if (arg == "--isa" && has_value) {
      settings.isa = divisi::ChooseIsa(argv[++i]).value();
    } else {
      settings.sections.push_back(arg);
    }
  }
  divisi::Main(settings);
}
