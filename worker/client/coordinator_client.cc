#include "worker/client/coordinator_client.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <cstdlib>

#include "regatta/v1/rank.grpc.pb.h"

namespace regatta {
namespace {

constexpr int kMaxMessageBytes = 64 << 20;
// Beyond the server's own deadline, which answers with a better sentence.
constexpr int64_t kDeadlineSlackMs = 5000;
constexpr int64_t kShortCallMs = 60000;

CoordinatorError::Kind KindOf(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::ABORTED:
      return CoordinatorError::Kind::kRefused;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return CoordinatorError::Kind::kTimeout;
    case grpc::StatusCode::UNAVAILABLE:
      return CoordinatorError::Kind::kUnreachable;
    default:
      return CoordinatorError::Kind::kOther;
  }
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') {
    throw std::runtime_error(std::string("the environment lacks ") + name +
                             "; ranks are started by regattad, not by hand");
  }
  return value;
}

int64_t NumberVariable(const char* name) {
  const std::string text = Variable(name);
  char* end = nullptr;
  const int64_t number = std::strtoll(text.c_str(), &end, 10);
  if (*end != '\0')
    throw std::runtime_error(std::string(name) + " is '" + text + "', not a number");
  return number;
}

RunSpec ReadSpec(const v1::RunSpec& from) {
  RunSpec to;
  to.strategy.name = from.strategy().name();
  for (const v1::Param& param : from.strategy().params())
    to.strategy.params.emplace_back(param.name(), param.text());
  to.model = {from.model().name(), from.model().folder(), from.model().config_json(),
              from.model().pretrained()};
  const v1::DatasetSpec& dataset = from.dataset();
  to.dataset = {dataset.name(),       dataset.train_file(), dataset.eval_file(),
                dataset.max_length(), dataset.train_rows(), dataset.eval_rows(),
                dataset.stream()};
  const v1::OptimizerSpec& optimizer = from.optimizer();
  to.optimizer = {optimizer.name(),         optimizer.implementation(), optimizer.learning_rate(),
                  optimizer.beta1(),        optimizer.beta2(),          optimizer.eps(),
                  optimizer.weight_decay(), optimizer.warmup_steps(),   optimizer.decay()};
  to.ranks = from.ranks();
  to.data_parallel = std::max(1, from.data_parallel());  // 0 in runs queued by an older version
  to.micro_batches = from.micro_batches();
  to.batch_size = from.batch_size();
  to.gradient_accumulation = from.gradient_accumulation();
  to.epochs = from.epochs();
  to.steps = from.steps();
  to.clip_norm = from.clip_norm();
  to.sampler = from.sampler();
  to.padded_length = from.padded_length();
  to.drop_last = from.drop_last();
  to.seed = from.seed();
  to.dropout = from.dropout();
  to.precision = from.precision();
  to.recompute = from.recompute();
  to.device = from.device();
  to.backend = from.backend();
  to.threads_per_rank = from.threads_per_rank();
  to.save_folder = from.save_folder();
  to.memory_limit = from.memory_limit();
  to.original = from.original();
  const v1::ProfileSpec& profile = from.profile();
  to.profile = {profile.wait(),   profile.warmup(), profile.active(), profile.repeat(),
                profile.memory(), profile.shapes(), profile.folder()};
  for (const v1::Fault& fault : from.chaos()) {
    to.chaos.push_back({fault.rank(), fault.step(), fault.what()});
  }
  return to;
}

void PutValues(const std::vector<std::pair<std::string, double>>& from,
               google::protobuf::RepeatedPtrField<v1::Value>* to) {
  for (const auto& [name, number] : from) {
    v1::Value* value = to->Add();
    value->set_name(name);
    value->set_number(number);
  }
}

void PutFacts(const CoordinatorClient::Facts& from,
              google::protobuf::RepeatedPtrField<v1::Fact>* to) {
  for (const auto& [name, text] : from) {
    v1::Fact* fact = to->Add();
    fact->set_name(name);
    fact->set_text(text);
  }
}

}  // namespace

RankIdentity ReadRankIdentity() {
  return {Variable("REGATTA_COORDINATOR"), NumberVariable("REGATTA_RUN"),
          static_cast<int>(NumberVariable("REGATTA_ATTEMPT")),
          static_cast<int>(NumberVariable("RANK")), Variable("REGATTA_TOKEN")};
}

struct CoordinatorClient::Body {
  std::unique_ptr<v1::RankService::Stub> stub;
  std::atomic<int64_t> store_calls{0};

  // One call; `timeout_ms` 0 waits as long as the server does.
  template <typename Request, typename Reply>
  void Call(grpc::Status (v1::RankService::Stub::*method)(grpc::ClientContext*, const Request&,
                                                          Reply*),
            const Request& request, Reply* reply, int64_t timeout_ms = kShortCallMs) {
    grpc::ClientContext context;
    if (timeout_ms > 0) {
      context.set_deadline(std::chrono::system_clock::now() +
                           std::chrono::milliseconds(timeout_ms));
    }
    const grpc::Status status = (stub.get()->*method)(&context, request, reply);
    if (!status.ok())
      throw CoordinatorError(KindOf(status.error_code()), "coordinator: " + status.error_message());
  }

  template <typename Request, typename Reply>
  void StoreCall(grpc::Status (v1::RankService::Stub::*method)(grpc::ClientContext*, const Request&,
                                                               Reply*),
                 const Request& request, Reply* reply, int64_t timeout_ms = kShortCallMs) {
    ++store_calls;
    Call(method, request, reply, timeout_ms);
  }
};

CoordinatorClient::CoordinatorClient(RankIdentity identity)
    : identity_(std::move(identity)), body_(std::make_unique<Body>()) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  body_->stub = v1::RankService::NewStub(
      grpc::CreateCustomChannel(identity_.address, grpc::InsecureChannelCredentials(), arguments));
}

CoordinatorClient::~CoordinatorClient() = default;

namespace {

template <typename Request>
Request From(const RankIdentity& identity) {
  Request request;
  v1::RankId* id = request.mutable_id();
  id->set_run(identity.run);
  id->set_attempt(identity.attempt);
  id->set_rank(identity.rank);
  id->set_token(identity.token);
  return request;
}

v1::GetRequest GetRequestFor(const RankIdentity& identity, const CoordinatorClient::Keys& keys,
                             int64_t timeout_ms, bool values_wanted) {
  auto request = From<v1::GetRequest>(identity);
  for (const std::string& key : keys) request.add_keys(key);
  request.set_timeout_ms(timeout_ms);
  request.set_values_wanted(values_wanted);
  return request;
}

}  // namespace

RunSpec CoordinatorClient::Join(const Facts& facts) {
  auto request = From<v1::JoinRequest>(identity_);
  PutFacts(facts, request.mutable_facts());
  v1::JoinReply reply;
  body_->Call(&v1::RankService::Stub::Join, request, &reply, 0);
  return ReadSpec(reply.spec());
}

void CoordinatorClient::Report(const std::vector<StepRecord>& steps, int64_t planned_steps,
                               const std::vector<TraceFile>& traces) {
  auto request = From<v1::ReportRequest>(identity_);
  request.set_planned_steps(planned_steps);
  for (const StepRecord& record : steps) {
    v1::StepValues* step = request.add_steps();
    step->set_step(record.step);
    PutValues(record.values, step->mutable_values());
  }
  for (const TraceFile& file : traces) {
    v1::Trace* trace = request.add_traces();
    trace->set_path(file.path);
    trace->set_bytes(file.bytes);
    trace->set_first_step(file.first_step);
    trace->set_steps(file.steps);
  }
  v1::ReportReply reply;
  body_->Call(&v1::RankService::Stub::Report, request, &reply);
}

void CoordinatorClient::Finish(const RankResult& result) {
  auto request = From<v1::FinishRequest>(identity_);
  request.set_ok(result.ok);
  request.set_sentence(result.sentence);
  request.set_exit_code(result.exit_code);
  PutValues(result.values, request.mutable_values());
  PutFacts(result.facts, request.mutable_facts());
  v1::FinishReply reply;
  body_->Call(&v1::RankService::Stub::Finish, request, &reply);
}

void CoordinatorClient::Set(const Keys& keys, const std::vector<std::string>& values) {
  auto request = From<v1::SetRequest>(identity_);
  for (const std::string& key : keys) request.add_keys(key);
  for (const std::string& value : values) request.add_values(value);
  v1::SetReply reply;
  body_->StoreCall(&v1::RankService::Stub::Set, request, &reply);
}

std::vector<std::string> CoordinatorClient::Get(const Keys& keys, int64_t timeout_ms) {
  v1::GetReply reply;
  body_->StoreCall(&v1::RankService::Stub::Get, GetRequestFor(identity_, keys, timeout_ms, true),
                   &reply, timeout_ms + kDeadlineSlackMs);
  return {reply.values().begin(), reply.values().end()};
}

void CoordinatorClient::Wait(const Keys& keys, int64_t timeout_ms) {
  v1::GetReply reply;
  body_->StoreCall(&v1::RankService::Stub::Get, GetRequestFor(identity_, keys, timeout_ms, false),
                   &reply, timeout_ms + kDeadlineSlackMs);
}

int64_t CoordinatorClient::Add(const std::string& key, int64_t amount) {
  auto request = From<v1::AddRequest>(identity_);
  request.set_key(key);
  request.set_amount(amount);
  v1::AddReply reply;
  body_->StoreCall(&v1::RankService::Stub::Add, request, &reply);
  return reply.sum();
}

std::string CoordinatorClient::CompareSet(const std::string& key, const std::string& expected,
                                          const std::string& desired) {
  auto request = From<v1::CompareSetRequest>(identity_);
  request.set_key(key);
  request.set_expected(expected);
  request.set_desired(desired);
  v1::CompareSetReply reply;
  body_->StoreCall(&v1::RankService::Stub::CompareSet, request, &reply);
  return reply.value();
}

void CoordinatorClient::Append(const std::string& key, const std::string& value) {
  auto request = From<v1::AppendRequest>(identity_);
  request.set_key(key);
  request.set_value(value);
  v1::AppendReply reply;
  body_->StoreCall(&v1::RankService::Stub::Append, request, &reply);
}

bool CoordinatorClient::Delete(const std::string& key) {
  auto request = From<v1::DeleteRequest>(identity_);
  request.set_key(key);
  v1::DeleteReply reply;
  body_->StoreCall(&v1::RankService::Stub::Delete, request, &reply);
  return reply.existed();
}

bool CoordinatorClient::Check(const Keys& keys) {
  auto request = From<v1::CheckRequest>(identity_);
  for (const std::string& key : keys) request.add_keys(key);
  v1::CheckReply reply;
  body_->StoreCall(&v1::RankService::Stub::Check, request, &reply);
  return reply.all_exist();
}

CoordinatorClient::Keys CoordinatorClient::ListKeys() {
  v1::ListKeysReply reply;
  body_->StoreCall(&v1::RankService::Stub::ListKeys, From<v1::ListKeysRequest>(identity_), &reply);
  return {reply.keys().begin(), reply.keys().end()};
}

int64_t CoordinatorClient::StoreCalls() const { return body_->store_calls; }

}  // namespace regatta
