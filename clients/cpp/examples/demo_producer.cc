// Streams a file, one message per line, and reports progress as JSON lines.
//
// Line i has key "k<i mod N>", property line=i, and the line's bytes with its newline as body.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "arguments.h"
#include "penstock/producer.h"

namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Counts, and prints once per second and at the end.
class Report {
 public:
  void Called(std::size_t messages, double seconds, int64_t retried) {
    sent_ += messages;
    calls_ms_.push_back(seconds * 1000);
    if (SecondsSince(printed_) >= 1) Print(retried);
  }

  void Print(int64_t retried) {
    printed_ = Clock::now();
    std::vector<double> ordered = calls_ms_.empty() ? std::vector<double>{0} : calls_ms_;
    std::sort(ordered.begin(), ordered.end());
    std::printf("{\"sent\": %zu, \"retried\": %lld, \"seconds\": %.3f, \"p50_ms\": %.3f, \"p99_ms\": %.3f}\n", sent_,
                static_cast<long long>(retried), SecondsSince(started_), ordered[ordered.size() / 2],
                ordered[ordered.size() * 99 / 100]);
    std::fflush(stdout);
  }

 private:
  const Clock::time_point started_ = Clock::now();
  Clock::time_point printed_ = started_;
  std::size_t sent_ = 0;
  std::vector<double> calls_ms_;
};

// The next lines as messages; fewer than `size` only at the end of the file.
std::vector<penstock::Message> NextBatch(
    std::istream& file, const std::string& topic, std::size_t size, int64_t keys, int64_t& number) {
  std::vector<penstock::Message> batch;
  for (std::string line; batch.size() < size && std::getline(file, line); number++) {
    if (!file.eof()) line.push_back('\n');  // the last line may have none
    penstock::Message& message = batch.emplace_back();
    message.topic = topic;
    message.__set_key("k" + std::to_string(number % keys));
    message.__set_body(line);
    message.__set_properties({{"line", std::to_string(number)}});
  }
  return batch;
}

}  // namespace

int main(int argc, char** argv) try {
  const Arguments given(argc, argv);
  std::ifstream file(given.Get("file"), std::ios::binary);
  if (!file) Arguments::Fail("cannot read " + given.Get("file"));
  const std::string topic = given.Get("topic");
  const std::size_t size = std::stoul(given.Get("batch", "100"));
  const int64_t keys = std::stol(given.Get("keys", "16"));
  penstock::client::Producer producer(given.Endpoints(), given.Identity(), given.Options());
  Report report;
  int64_t number = 0;
  for (auto batch = NextBatch(file, topic, size, keys, number); !batch.empty();
       batch = NextBatch(file, topic, size, keys, number)) {
    const auto began = Clock::now();
    const auto results = producer.SendAll(batch);
    const auto lost = std::find_if(results.begin(), results.end(), [](const auto& result) { return !result.ok(); });
    if (lost != results.end()) {
      report.Print(producer.retried());
      Arguments::Fail("not acknowledged: " + penstock::client::NameOf(lost->code) + ": " + lost->reason);
    }
    report.Called(results.size(), SecondsSince(began), producer.retried());
  }
  report.Print(producer.retried());
} catch (const std::exception& error) {
  Arguments::Fail(error.what());
}
