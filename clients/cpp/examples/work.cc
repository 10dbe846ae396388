// Handles messages by Consumer::Run, each for --handle-ms, until SIGTERM; prints one line per handled message.
//
// A line is: topic, queue, offset, attempt; separated by tabs. The last line is a JSON object of counts.

#include <algorithm>
#include <csignal>
#include <mutex>
#include <sstream>
#include <thread>

#include "arguments.h"
#include "penstock/consumer.h"

namespace {

volatile std::sig_atomic_t stopped = 0;

void Stop(int) { stopped = 1; }

}  // namespace

int main(int argc, char** argv) try {
  namespace client = penstock::client;
  const Arguments given(argc, argv);
  const client::Milliseconds handling(std::stol(given.Get("handle-ms", "0")));
  client::Subscription subscription{given.Get("group"), {}, {}};
  std::stringstream topics(given.Get("topic"));
  for (std::string topic; std::getline(topics, topic, ',');) subscription.topics.push_back(topic);
  const std::string lease = given.Get("lease-ms", "");
  if (!lease.empty()) subscription.invisible = client::Milliseconds(std::stol(lease));
  client::Options options = given.Options();
  options.outage_max = client::Milliseconds(std::stol(given.Get("outage-ms", "600000")));
  std::signal(SIGTERM, Stop);
  std::signal(SIGINT, Stop);
  client::Consumer consumer(given.Endpoints(), given.Identity(), subscription, options);
  int handled = 0, busy = 0, busiest = 0;
  std::mutex mutex;
  consumer.Run(
      [&](const penstock::Delivery& delivery) {
        {
          const std::lock_guard<std::mutex> lock(mutex);
          busiest = std::max(busiest, ++busy);
        }
        std::this_thread::sleep_for(handling);
        const std::lock_guard<std::mutex> lock(mutex);
        busy--;
        std::cout << delivery.message.topic << '\t' << delivery.queue << '\t' << delivery.offset << '\t' << delivery.attempt
                  << std::endl;
        handled++;
        return penstock::Verdict::DONE;
      },
      [] { return stopped != 0; }, 32, std::stoi(given.Get("workers", "1")));
  consumer.Close();
  std::cout << "{\"handled\": " << handled << ", \"refused\": " << consumer.acks_refused() << ", \"busiest\": " << busiest
            << "}" << std::endl;
} catch (const std::exception& error) {
  Arguments::Fail(error.what());
}
