// Pulls until --count different lines have come, or SIGTERM; prints a line per delivery and acknowledges all.
//
// A line is: line number, key, queue, offset, attempt, SHA-256 of the body in hex; separated by tabs. A message that is delivered
// twice is printed twice and counted once.

#include <csignal>
#include <unordered_set>

#include "arguments.h"
#include "penstock/consumer.h"
#include "penstock/sha256.h"

namespace {

volatile std::sig_atomic_t stopped = 0;

void Stop(int) { stopped = 1; }

}  // namespace

int main(int argc, char** argv) try {
  namespace client = penstock::client;
  const Arguments given(argc, argv);
  const std::size_t count = std::stoul(given.Get("count"));
  const int most = std::stoi(given.Get("max", "256"));
  std::signal(SIGTERM, Stop);
  std::signal(SIGINT, Stop);
  std::ios::sync_with_stdio(false);
  client::Consumer consumer(
      given.Endpoints(), given.Identity(), {given.Get("group"), {given.Get("topic")}, {}}, given.Options());
  std::unordered_set<std::string> seen;
  while (seen.size() < count && !stopped) {
    for (const penstock::Delivery& delivery : consumer.Pull(most, client::Milliseconds(1'000))) {
      const penstock::Message& message = delivery.message;
      const auto line = message.properties.find("line");
      const std::string number = line == message.properties.end() ? "" : line->second;
      seen.insert(number);
      std::cout << number << '\t' << message.key << '\t' << delivery.queue << '\t' << delivery.offset << '\t'
                << delivery.attempt << '\t' << client::Hex(client::Sha256Of(message.body)) << '\n';
      consumer.Done(delivery);
    }
    std::cout.flush();
  }
  consumer.Close();
} catch (const std::exception& error) {
  Arguments::Fail(error.what());
}
