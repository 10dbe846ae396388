// The command line that all example programs share. The secret comes from the environment, where `ps` does not show it.
#pragma once

#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "penstock/options.h"

class Arguments {
 public:
  Arguments(int argc, char** argv) {
    for (int i = 1; i < argc; i++) {
      const std::string word = argv[i];
      if (word == "--buffered")
        buffered_ = true;
      else if (word.rfind("--", 0) == 0 && i + 1 < argc)
        given_[word.substr(2)] = argv[++i];
      else
        rest.push_back(word);
    }
  }

  std::string Get(const std::string& name) const {
    const auto found = given_.find(name);
    if (found == given_.end()) Fail("--" + name + " is missing");
    return found->second;
  }

  std::string Get(const std::string& name, const std::string& standard) const {
    const auto found = given_.find(name);
    return found == given_.end() ? standard : found->second;
  }

  std::vector<penstock::client::Endpoint> Endpoints() const { return penstock::client::ParseEndpoints(Get("endpoints")); }

  penstock::client::Identity Identity() const {
    const char* secret = std::getenv("PENSTOCK_SECRET");
    if (secret == nullptr) Fail("set PENSTOCK_SECRET to the application's secret");
    return {Get("app"), Get("key-id"), secret};
  }

  penstock::client::Options Options() const {
    penstock::client::Options options;
    options.framed = !buffered_;
    options.deadline = penstock::client::Milliseconds(std::stol(Get("deadline-ms", "30000")));
    options.tls_ca_file = Get("tls-ca", "");
    options.tls = !options.tls_ca_file.empty();
    return options;
  }

  [[noreturn]] static void Fail(const std::string& reason) {
    std::cout.flush();
    std::cerr << reason << std::endl;
    std::exit(1);
  }

  std::vector<std::string> rest;

 private:
  std::map<std::string, std::string> given_;
  bool buffered_ = false;
};
