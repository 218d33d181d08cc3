#pragma once

#include <functional>
#include <string>

#include "coordinator/event_queue.h"
#include "coordinator/experiment/experiment.h"
#include "regatta/v1/control.grpc.pb.h"

namespace regatta {

struct ControlOptions {
  std::string state_folder;
  std::string material_folder;
  std::string status_page;  // URL
  int slots = 1;
  int cores = 1;
  std::function<std::string(int gpus)> check_gpus = {};  // why a run cannot have so many; or empty
};

// The client's calls: parses and checks on gRPC's threads, posts to the loop or reads, and answers.
// Callback API: a waiting call holds no thread.
class ControlService : public v1::Control::CallbackService {
 public:
  ControlService(ControlOptions options, EventQueue& events)
      : options_(std::move(options)), events_(events) {}

  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const v1::DescribeRequest* request,
                                     v1::DescribeReply* reply) override;
  grpc::ServerUnaryReactor* Submit(grpc::CallbackServerContext* context,
                                   const v1::SubmitRequest* request,
                                   v1::SubmitReply* reply) override;
  grpc::ServerUnaryReactor* Cancel(grpc::CallbackServerContext* context,
                                   const v1::CancelRequest* request,
                                   v1::CancelReply* reply) override;
  grpc::ServerUnaryReactor* Query(grpc::CallbackServerContext* context,
                                  const v1::QueryRequest* request, v1::QueryReply* reply) override;
  grpc::ServerUnaryReactor* Await(grpc::CallbackServerContext* context,
                                  const v1::AwaitRequest* request, v1::AwaitReply* reply) override;
  grpc::ServerUnaryReactor* ReadLog(grpc::CallbackServerContext* context,
                                    const v1::ReadLogRequest* request,
                                    v1::ReadLogReply* reply) override;

 private:
  [[nodiscard]] absl::Status CheckGpus(const Experiment& experiment) const;

  const ControlOptions options_;
  EventQueue& events_;
};

}  // namespace regatta
