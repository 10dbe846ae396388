// Sends three messages, pulls and acknowledges them: generated code and Apache Thrift's C++ library, of ours only the HMAC.
//
//     stub framed|buffered PRODUCER CONSUMER APP KEY_ID TOPIC GROUP        (secret: PENSTOCK_SECRET)

#include <thrift/protocol/TBinaryProtocol.h>
#include <thrift/transport/TBufferTransports.h>
#include <thrift/transport/TSocket.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "Consumer.h"
#include "Producer.h"
#include "penstock/sha256.h"

using namespace apache::thrift;
using namespace apache::thrift::transport;

namespace {

const std::vector<std::string> kBodies = {"one", std::string("\x00\xff\n\xfe", 4), ""};

void Check(bool held, const std::string& what) {
  if (held) return;
  std::cerr << "wrong: " << what << std::endl;
  std::exit(1);
}

template <typename Client>
Client Connect(const std::string& at, const std::string& transport) {
  const auto colon = at.rfind(':');
  auto socket = std::make_shared<TSocket>(at.substr(0, colon), std::stoi(at.substr(colon + 1)));
  socket->setConnTimeout(5'000);
  socket->setRecvTimeout(15'000);
  std::shared_ptr<TTransport> wrapped;
  if (transport == "framed")
    wrapped = std::make_shared<TFramedTransport>(socket);
  else
    wrapped = std::make_shared<TBufferedTransport>(socket);
  wrapped->open();
  return Client(std::make_shared<protocol::TBinaryProtocol>(wrapped));
}

template <typename T>
std::string Show(const T& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> given(argv + 1, argv + argc);
  Check(given.size() == 7, "seven arguments are needed");
  const std::string &transport = given[0], &topic = given[5], &group = given[6];

  penstock::Credential credential;
  credential.app = given[3];
  credential.key_id = given[4];
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  const int64_t now_ms = std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch).count();
  credential.issued_at_ms = now_ms;
  credential.signature = penstock::client::HmacSha256(
      std::getenv("PENSTOCK_SECRET"),
      "penstock/1\n" + credential.app + "\n" + credential.key_id + "\n" + std::to_string(now_ms));

  penstock::SendRequest request;
  request.credential = credential;
  for (std::size_t number = 0; number < kBodies.size(); number++) {
    penstock::Message& message = request.messages.emplace_back();
    message.topic = topic;
    message.__set_key("k");
    message.__set_body(kBodies[number]);
    message.__set_properties({{"number", std::to_string(number)}});
  }
  request.messages[2].__set_id(topic + "-third");
  penstock::SendResponse sent;
  Connect<penstock::ProducerClient>(given[1], transport).send(sent, request);
  Check(sent.results.size() == 3, "number of results");
  for (int64_t number = 0; number < 3; number++) {
    const penstock::SendResult& result = sent.results[number];
    Check(result.code == penstock::Code::OK && !result.id.empty(), Show(result));
    Check(result.queue == sent.results[0].queue && result.__isset.offset && result.offset == number, Show(result));
  }
  Check(sent.results[2].id == topic + "-third", "the id that was sent along");

  auto receiver = Connect<penstock::ConsumerClient>(given[2], transport);
  penstock::PullRequest ask;
  ask.credential = credential;
  ask.group = group;
  ask.__set_topics({topic});
  ask.__set_max_messages(10);
  ask.__set_wait_ms(10'000);
  std::vector<penstock::Delivery> pulled;
  while (pulled.size() < 3) {
    penstock::PullResponse response;
    receiver.pull(response, ask);
    Check(response.code == penstock::Code::OK && !response.deliveries.empty(), Show(response));
    pulled.insert(pulled.end(), response.deliveries.begin(), response.deliveries.end());
  }
  penstock::PullRequest last_ask = ask;
  last_ask.__set_max_messages(0);
  last_ask.__isset.acks = true;
  for (std::size_t number = 0; number < pulled.size(); number++) {
    const penstock::Delivery& delivery = pulled[number];
    const penstock::SendResult& result = sent.results.at(number);
    Check(delivery.id == result.id && delivery.queue == result.queue && delivery.offset == result.offset, Show(delivery));
    Check(delivery.attempt == 1 && std::abs(delivery.stored_at_ms - now_ms) < 60'000, Show(delivery));
    Check(delivery.message.topic == topic && delivery.message.key == "k", Show(delivery));
    Check(delivery.message.body == kBodies[number], Show(delivery));
    Check(delivery.message.properties == std::map<std::string, std::string>{{"number", std::to_string(number)}}, Show(delivery));
    last_ask.acks.emplace_back().receipt = delivery.receipt;
  }

  penstock::PullResponse last;
  receiver.pull(last, last_ask);
  Check(last.code == penstock::Code::OK && last.deliveries.empty() && last.ack_results.size() == 3, Show(last));
  for (const penstock::AckResult& ack : last.ack_results) Check(ack.code == penstock::Code::OK, Show(ack));
  std::cout << "ok" << std::endl;
} catch (const std::exception& error) {
  Check(false, error.what());
}
