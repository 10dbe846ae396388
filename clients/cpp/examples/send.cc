// Sends each argument as one message.

#include "arguments.h"
#include "penstock/producer.h"

int main(int argc, char** argv) try {
  const Arguments given(argc, argv);
  penstock::client::Producer producer(given.Endpoints(), given.Identity(), given.Options());
  for (const std::string& body : given.rest) {
    penstock::Message message;
    message.topic = given.Get("topic");
    message.__set_body(body);
    if (const std::string key = given.Get("key", ""); !key.empty()) message.__set_key(key);
    const auto result = producer.Send(std::move(message));
    std::cout << result.id << '\t' << result.queue.value_or(-1) << '\t' << result.offset.value_or(-1) << '\n';
  }
} catch (const std::exception& error) {
  Arguments::Fail(error.what());
}
