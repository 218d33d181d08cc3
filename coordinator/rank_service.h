#pragma once

#include "coordinator/coordinator.h"
#include "coordinator/event_queue.h"
#include "coordinator/rendezvous.h"
#include "regatta/v1/rank.grpc.pb.h"

namespace regatta {

// The ranks' calls. Callback API: hundreds of ranks that wait inside Join and Get cost no thread.
class RankServer : public v1::RankService::CallbackService {
 public:
  RankServer(Coordinator& coordinator, Rendezvous& rendezvous, EventQueue& events)
      : coordinator_(coordinator), rendezvous_(rendezvous), events_(events) {}

  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const v1::JoinRequest* request, v1::JoinReply* reply) override;
  grpc::ServerUnaryReactor* Set(grpc::CallbackServerContext* context, const v1::SetRequest* request,
                                v1::SetReply* reply) override;
  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context, const v1::GetRequest* request,
                                v1::GetReply* reply) override;
  grpc::ServerUnaryReactor* Add(grpc::CallbackServerContext* context, const v1::AddRequest* request,
                                v1::AddReply* reply) override;
  grpc::ServerUnaryReactor* CompareSet(grpc::CallbackServerContext* context,
                                       const v1::CompareSetRequest* request,
                                       v1::CompareSetReply* reply) override;
  grpc::ServerUnaryReactor* Append(grpc::CallbackServerContext* context,
                                   const v1::AppendRequest* request,
                                   v1::AppendReply* reply) override;
  grpc::ServerUnaryReactor* Delete(grpc::CallbackServerContext* context,
                                   const v1::DeleteRequest* request,
                                   v1::DeleteReply* reply) override;
  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const v1::CheckRequest* request, v1::CheckReply* reply) override;
  grpc::ServerUnaryReactor* ListKeys(grpc::CallbackServerContext* context,
                                     const v1::ListKeysRequest* request,
                                     v1::ListKeysReply* reply) override;
  grpc::ServerUnaryReactor* Report(grpc::CallbackServerContext* context,
                                   const v1::ReportRequest* request,
                                   v1::ReportReply* reply) override;
  grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context,
                                   const v1::FinishRequest* request,
                                   v1::FinishReply* reply) override;

 private:
  Coordinator& coordinator_;
  Rendezvous& rendezvous_;
  EventQueue& events_;
};

}  // namespace regatta
