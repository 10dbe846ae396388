// Prints messages until none has come for --wait-ms, and acknowledges them.

#include "arguments.h"
#include "penstock/consumer.h"

int main(int argc, char** argv) try {
  const Arguments given(argc, argv);
  const penstock::client::Milliseconds wait(std::stol(given.Get("wait-ms", "1000")));
  penstock::client::Consumer consumer(
      given.Endpoints(), given.Identity(), {given.Get("group"), {given.Get("topic")}, {}}, given.Options());
  for (auto deliveries = consumer.Pull(32, wait); !deliveries.empty(); deliveries = consumer.Pull(32, wait)) {
    for (const penstock::Delivery& delivery : deliveries) {
      std::cout << delivery.queue << '\t' << delivery.offset << '\t' << delivery.attempt << '\t' << delivery.message.key << '\t'
                << delivery.message.body << '\n';
      consumer.Done(delivery);
    }
  }
  consumer.Close();
} catch (const std::exception& error) {
  Arguments::Fail(error.what());
}
