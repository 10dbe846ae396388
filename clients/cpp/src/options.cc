#include "penstock/options.h"

#include <iostream>
#include <sstream>
#include <stdexcept>

namespace penstock::client {

void TellOnStderr(const std::string& sentence) { std::cerr << "penstock: " + sentence + "\n"; }

std::vector<Endpoint> ParseEndpoints(const std::string& list) {
  std::vector<Endpoint> endpoints;
  std::stringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    const auto colon = part.rfind(':');
    const std::string port = colon == std::string::npos ? "" : part.substr(colon + 1);
    if (port.empty() || port.size() > 5 || port.find_first_not_of("0123456789") != std::string::npos)
      throw std::invalid_argument("endpoint \"" + part + "\": invalid: use HOST:PORT");
    std::string host = part.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    endpoints.push_back({host, std::stoi(port)});
  }
  if (endpoints.empty()) throw std::invalid_argument("no endpoints: give at least one HOST:PORT");
  return endpoints;
}

}  // namespace penstock::client
