// Does what the conformance suite asks for: one JSON object per line on stdin and on stdout; clients/conformance/.

#define BOOST_BIND_GLOBAL_PLACEHOLDERS // of the header's own includes
#include <boost/property_tree/json_parser.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <iomanip>
#include <iostream>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "penstock/batching.h"
#include "penstock/consumer.h"
#include "penstock/errors.h"
#include "penstock/producer.h"

namespace {

using boost::property_tree::ptree;
using penstock::client::Milliseconds;

std::string Hex(const std::string& bytes) {
  static const char* digits = "0123456789abcdef";
  std::string text;
  for (unsigned char byte : bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

std::string Unhex(const std::string& text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size(); at += 2) bytes += static_cast<char>(std::stoi(text.substr(at, 2), nullptr, 16));
  return bytes;
}

// The suite sends and receives no text that JSON would escape.
std::string Quoted(const std::string& text) {
  std::ostringstream quoted;
  quoted << std::quoted(text);
  return quoted.str();
}

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
    if (what == "batch") return Batch(asked);
    if (what == "pull") return Pull(asked);
    if (what == "settle") return Settle(asked);
    if (what == "run") return Run(asked);
    if (what == "reply") {
      producer_->Reply(pulled_.at(asked.get<std::size_t>("index")), Unhex(asked.get<std::string>("body")));
      return "{}";
    }
    if (what == "flush") {
      consumer_->Flush();
      std::string told;
      for (const auto& count : told_) told += (told.empty() ? "" : ", ") + std::to_string(count.load());
      return "{\"refused\": " + std::to_string(consumer_->acks_refused()) + ", \"told\": [" + told + "]}";
    }
    producer_.reset();
    consumer_->Close();
    return "{}";
  }

 private:
  std::string Open(const ptree& asked) {
    penstock::client::Options options;
    options.deadline = Milliseconds(asked.get<int>("deadline_ms"));
    options.call_timeout = Milliseconds(asked.get<int>("call_timeout_ms"));
    options.framed = !asked.get<bool>("buffered");
    options.tls_ca_file = asked.get<std::string>("tls_ca");
    for (auto& count : told_) count = 0;
    options.metrics.call = [this](const auto&, const auto&, Milliseconds, const std::string& failure) {
      told_[0]++;
      told_[1] += failure.empty() ? 0 : 1;
    };
    options.metrics.sent = [this](const auto&) { told_[2]++; };
    options.metrics.handled = [this](const auto&, int, Milliseconds) { told_[3]++; };
    options.tls = !options.tls_ca_file.empty();
    const penstock::client::Identity identity{
        asked.get<std::string>("app"), asked.get<std::string>("key_id"), asked.get<std::string>("secret")};
    topic_ = asked.get<std::string>("topic");
    const auto endpoints = [&](const char* name) {
      return penstock::client::ParseEndpoints(asked.get<std::string>(name));
    };
    producer_ = std::make_unique<penstock::client::Producer>(endpoints("producer"), identity, options);
    penstock::client::Subscription subscription{asked.get<std::string>("group"), {topic_}, {}};
    if (asked.get<int>("lease_ms") > 0) subscription.invisible = Milliseconds(asked.get<int>("lease_ms"));
    consumer_ = std::make_unique<penstock::client::Consumer>(endpoints("consumer"), identity, subscription, options);
    return "{}";
  }

  std::string Send(const ptree& asked) {
    std::vector<penstock::Message> messages;
    for (const auto& [name, given] : asked.get_child("messages")) messages.push_back(MessageOf(given));
    penstock::client::How how;
    how.reply_wait = Milliseconds(asked.get<int>("reply_wait_ms"));
    std::string shown;
    for (const auto& each : producer_->SendAll(messages, how)) {
      shown += shown.empty() ? "" : ", ";
      shown += "{\"code\": " + std::to_string(each.code) + ", \"id\": " + Quoted(each.id) +
               ", \"queue\": " + OrNull(each.queue) + ", \"offset\": " + OrNull(each.offset) +
               ", \"attempts\": " + std::to_string(each.attempts) +
               ", \"reply\": " + (each.reply ? Quoted(Hex(each.reply->body)) : "null") +
               ", \"reason\": " + Quoted(each.reason) + "}";
    }
    return "{\"results\": [" + shown + "]}";
  }

  std::string Batch(const ptree& asked) {
    const auto ms = [&](const char* name) { return Milliseconds(asked.get<int>(name)); };
    penstock::client::Batching how;
    how.linger = ms("linger_ms");
    how.bytes = asked.get<std::size_t>("bytes");
    how.messages = asked.get<std::size_t>("count");
    how.bytes_max = asked.get<std::size_t>("bytes_max");
    how.full_wait = ms("full_wait_ms");
    penstock::client::BatchingProducer batching(*producer_, how);
    std::vector<std::future<penstock::client::Result>> taken;  // not valid: the producer was full
    for (const auto& [name, given] : asked.get_child("messages")) {
      taken.emplace_back();
      try {
        taken.back() = batching.Send(MessageOf(given));
      } catch (const penstock::client::FullError&) {
      }
    }
    if (asked.get<bool>("flush")) batching.Flush();
    if (asked.get<int>("close_ms") >= 0) batching.Close(ms("close_ms"));
    std::string shown;
    for (auto& each : taken) shown += (shown.empty() ? "" : ", ") + Outcome(each);
    return "{\"results\": [" + shown + "]}";
  }

  static std::string Outcome(std::future<penstock::client::Result>& taken) {
    const auto result = [](int code, const std::string& id, int attempts) {
      return "{\"code\": " + std::to_string(code) + ", \"id\": " + Quoted(id) +
             ", \"attempts\": " + std::to_string(attempts) + "}";
    };
    if (!taken.valid()) return "{\"error\": \"full\"}";
    try {
      const auto stored = taken.get();
      return result(stored.code, stored.id, stored.attempts);
    } catch (const penstock::client::ClosedError&) {
      return "{\"error\": \"closed\"}";
    } catch (const penstock::client::SendError& error) {
      return result(error.code(), error.id(), 0);
    }
  }

  penstock::Message MessageOf(const ptree& given) {
    penstock::Message message;
    message.topic = topic_;
    std::string body;
    const auto part = Unhex(given.get<std::string>("body"));
    for (int times = given.get<int>("times", 1); times > 0; times--) body += part;
    message.__set_body(body);
    if (given.count("key")) message.__set_key(given.get<std::string>("key"));
    if (given.count("id")) message.__set_id(given.get<std::string>("id"));
    if (given.count("tag")) message.__set_tag(given.get<std::string>("tag"));
    if (given.count("delay_ms")) message.__set_delay_ms(given.get<int>("delay_ms"));
    if (given.get<bool>("cancel", false)) message.__set_operation(penstock::Operation::CANCEL);
    if (given.count("properties")) {
      std::map<std::string, std::string> properties;
      for (const auto& [name, value] : given.get_child("properties")) properties[name] = value.data();
      message.__set_properties(properties);
    }
    return message;
  }

  std::string Pull(const ptree& asked) {
    pulled_ = consumer_->Pull(asked.get<int>("max"), Milliseconds(asked.get<int>("wait_ms")));
    std::string shown;
    for (const auto& each : pulled_) {
      shown += shown.empty() ? "" : ", ";
      const auto& message = each.message;
      std::string properties;
      for (const auto& [name, value] : message.properties) {
        properties += (properties.empty() ? "" : ", ") + Quoted(name) + ": " + Quoted(value);
      }
      shown += "{\"body\": " + Quoted(Hex(message.body)) + ", \"key\": " + Quoted(message.key) +
               ", \"tag\": " + Quoted(message.tag) + ", \"properties\": {" + properties + "}" +
               ", \"id\": " + Quoted(each.id) + ", \"attempt\": " + std::to_string(each.attempt) +
               ", \"asked\": " + (each.__isset.reply_token ? "true" : "false") + "}";
    }
    return "{\"deliveries\": [" + shown + "]}";
  }

  std::string Run(const ptree& asked) {
    const auto verdict = asked.get<std::string>("verdict");
    std::string shown;
    std::atomic<int> left = asked.get<int>("count");
    int busy = 0, busiest = 0;
    std::mutex mutex;
    consumer_->Run(
        [&](const penstock::Delivery& delivery) {
          {
            const std::lock_guard<std::mutex> lock(mutex);
            busiest = std::max(busiest, ++busy);
          }
          std::this_thread::sleep_for(Milliseconds(asked.get<int>("handle_ms")));
          const std::lock_guard<std::mutex> lock(mutex);
          busy--;
          shown += (shown.empty() ? "" : ", ") + Quoted(Hex(delivery.message.body));
          left--;
          if (verdict == "fault") throw left.load();
          if (verdict == "fail") throw std::runtime_error("the handler failed");
          return verdict == "reject" ? penstock::Verdict::REJECT : penstock::Verdict::DONE;
        },
        [&] { return left <= 0; }, 32, asked.get<int>("workers"));
    return "{\"handled\": [" + shown + "], \"busiest\": " + std::to_string(busiest) + "}";
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
  std::array<std::atomic<int>, 4> told_{};  // calls, failed calls, sent messages, handled messages
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
    } catch (const penstock::client::SendError& error) {
      std::cout << "{\"code\": " << error.code() << "}" << std::endl;
    } catch (const penstock::client::ContractError&) {
      std::cout << "{\"code\": -1}" << std::endl;
    }
  }
}
