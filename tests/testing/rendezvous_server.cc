#include "tests/testing/rendezvous_server.h"

#include <grpcpp/grpcpp.h>

#include "coordinator/coordinator.h"
#include "coordinator/rank_service.h"

namespace regatta {
namespace {

class NoSink : public ChangeSink {
 public:
  void Submit(int64_t, std::vector<Change>) override {}
};

}  // namespace

struct RendezvousServer::Body {
  SystemClock clock;
  EventQueue events;
  NoSink sink;
  Rendezvous rendezvous{[](AttemptKey) {}};
  Coordinator coordinator{{}, clock, events, sink, rendezvous};
  RankServer service{coordinator, rendezvous, events};
  std::unique_ptr<grpc::Server> server;
};

RendezvousServer::RendezvousServer(const std::string& address, int ranks)
    : body_(std::make_unique<Body>()) {
  body_->rendezvous.Open({1, 1}, ranks, "secret");
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(&body_->service);
  body_->server = builder.BuildAndStart();
}

RendezvousServer::~RendezvousServer() {
  body_->rendezvous.Close({1, 1}, "the test is over");
  body_->server->Shutdown();
}

}  // namespace regatta
