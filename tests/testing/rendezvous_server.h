#pragma once

#include <memory>
#include <string>

namespace regatta {

// The coordinator's rank service over a Unix socket, without a loop behind it. Standard types only.
class RendezvousServer {
 public:
  // One attempt of run 1 with that many ranks and the token "secret".
  RendezvousServer(const std::string& address, int ranks);
  ~RendezvousServer();

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace regatta
