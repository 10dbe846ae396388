// Does what the conformance suite asks for: one JSON object per line on stdin and on stdout; clients/conformance/.

#define BOOST_BIND_GLOBAL_PLACEHOLDERS // of the header's own includes
#include <boost/property_tree/json_parser.hpp>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "penstock/consumer.h"
#include "penstock/errors.h"
#include "penstock/producer.h"

namespace {

using boost::property_tree::ptree;
using penstock::client::Milliseconds;

// The suite sends and receives no text that JSON would escape.
std::string Quoted(const std::string& text) { return '"' + text + '"'; }

template <typename Number>
std::string OrNull(const std::optional<Number>& number) {
  return number ? std::to_string(*number) : "null";
}

class Driver {
 public:
  std::string Do(const ptree& asked) {
    const auto what = asked.get<std::string>("do");
    if (what == "open") return Open(asked);
    if (what == "send") return Send(asked);
    if (what == "pull") return Pull(asked);
    if (what == "settle") return Settle(asked);
    if (what == "flush") {
      consumer_->Flush();
      return "{\"refused\": " + std::to_string(consumer_->acks_refused()) + "}";
    }
    producer_.reset();
    consumer_->Close();
    return "{}";
  }

 private:
  std::string Open(const ptree& asked) {
    penstock::client::Options options;
    options.deadline = Milliseconds(asked.get<int>("deadline_ms"));
    options.framed = !asked.get<bool>("buffered");
    options.tls_ca_file = asked.get<std::string>("tls_ca");
    options.tls = !options.tls_ca_file.empty();
    const penstock::client::Identity identity{
        asked.get<std::string>("app"), asked.get<std::string>("key_id"), asked.get<std::string>("secret")};
    topic_ = asked.get<std::string>("topic");
    const auto endpoints = [&](const char* name) {
      return penstock::client::ParseEndpoints(asked.get<std::string>(name));
    };
    producer_ = std::make_unique<penstock::client::Producer>(endpoints("producer"), identity, options);
    consumer_ = std::make_unique<penstock::client::Consumer>(
        endpoints("consumer"), identity,
        penstock::client::Subscription{asked.get<std::string>("group"), {topic_}, {}}, options);
    return "{}";
  }

  std::string Send(const ptree& asked) {
    std::vector<penstock::Message> messages;
    for (const auto& [name, given] : asked.get_child("messages")) {
      penstock::Message message;
      message.topic = topic_;
      message.__set_body(given.get<std::string>("body"));
      if (given.count("key")) message.__set_key(given.get<std::string>("key"));
      if (given.count("id")) message.__set_id(given.get<std::string>("id"));
      messages.push_back(std::move(message));
    }
    std::string shown;
    for (const auto& each : producer_->SendAll(messages)) {
      shown += shown.empty() ? "" : ", ";
      shown += "{\"code\": " + std::to_string(each.code) + ", \"id\": " + Quoted(each.id) +
               ", \"queue\": " + OrNull(each.queue) + ", \"offset\": " + OrNull(each.offset) +
               ", \"attempts\": " + std::to_string(each.attempts) + "}";
    }
    return "{\"results\": [" + shown + "]}";
  }

  std::string Pull(const ptree& asked) {
    pulled_ = consumer_->Pull(asked.get<int>("max"), Milliseconds(asked.get<int>("wait_ms")));
    std::string shown;
    for (const auto& each : pulled_) {
      shown += shown.empty() ? "" : ", ";
      shown += "{\"body\": " + Quoted(each.message.body) + ", \"key\": " + Quoted(each.message.key) +
               ", \"attempt\": " + std::to_string(each.attempt) + "}";
    }
    return "{\"deliveries\": [" + shown + "]}";
  }

  std::string Settle(const ptree& asked) {
    const auto& delivery = pulled_.at(asked.get<std::size_t>("index"));
    const auto verdict = asked.get<std::string>("verdict");
    const Milliseconds delay(asked.get<int>("delay_ms"));
    const auto reason = asked.get<std::string>("reason");
    if (verdict == "done") {
      consumer_->Done(delivery);
    } else if (verdict == "retry") {
      consumer_->Retry(delivery, delay, reason);
    } else if (verdict == "reject") {
      consumer_->Reject(delivery, reason);
    } else {
      consumer_->Extend(delivery, delay);
    }
    return "{}";
  }

  std::unique_ptr<penstock::client::Producer> producer_;
  std::unique_ptr<penstock::client::Consumer> consumer_;
  std::string topic_;
  std::vector<penstock::Delivery> pulled_;
};

}  // namespace

int main() {
  Driver driver;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream text(line);
    ptree asked;
    boost::property_tree::read_json(text, asked);
    try {
      std::cout << driver.Do(asked) << std::endl;
    } catch (const penstock::client::PullError& error) {
      std::cout << "{\"code\": " << error.code() << "}" << std::endl;
    }
  }
}
