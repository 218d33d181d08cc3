#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <random>
#include <sstream>

#include "strategies/plan/pipeline/bubble.h"
#include "strategies/plan/pipeline/program.h"
#include "strategies/plan/pipeline/simulate.h"
#include "strategies/plan/pipeline/split.h"
#include "tests/testing/pipeline_rows.h"

namespace regatta {
namespace {

using testing::HasSubstr;

std::string Joined(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) text += (text.empty() ? "" : " ") + ActionText(action);
  return text;
}

Program Computing(const std::string& name, const PipelineShape& shape) {
  return MakeProgram(PolicyOf(name), shape);
}

Program WithTransfers(const std::string& name, const PipelineShape& shape) {
  auto program = AddTransfers(Computing(name, shape), shape);
  const auto* sentence = std::get_if<std::string>(&program);
  EXPECT_EQ(sentence, nullptr) << name << ": " << *sentence;
  return std::get<Program>(program);
}

// `forward`, and two equal parts of backward, of every stage.
Timeline Timed(const std::string& name, const PipelineShape& shape, StageCosts costs = {}) {
  return Simulate(Computing(name, shape), shape,
                  {std::vector<StageCosts>(static_cast<size_t>(shape.Stages()), costs), 0});
}

TEST(PipelineProgramTest, EqualsTorchDistributedPipelining) {
  std::ifstream file(REGATTA_TEST_DATA "/pipeline_programs.txt");
  ASSERT_TRUE(file);
  std::string line;
  int lines = 0;
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    std::istringstream head(line.substr(0, colon));
    std::string name;
    PipelineShape shape;
    size_t rank = 0;
    head >> name >> shape.ranks >> shape.stages_per_rank >> shape.micro_batches >> rank;
    SCOPED_TRACE(line.substr(0, colon));
    ASSERT_EQ(CheckShape(PolicyOf(name), shape), "");
    EXPECT_EQ(Joined(Computing(name, shape)[rank]), line.substr(colon + 2));
    ++lines;
  }
  EXPECT_GT(lines, 400);
}

TEST(PipelineProgramTest, OneStepOfThreeStages) {
  const Program program = WithTransfers("1f1b_pp", {3, 1, 2});
  EXPECT_EQ(Joined(program[0]), "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1");
  EXPECT_EQ(Joined(program[2]), "2RECV_F0 2F0 2RECV_F1 2B0 2SEND_B0 2F1 2B1 2SEND_B1");
  EXPECT_EQ(Joined(Computing("gpipe_pp", {2, 1, 3})[1]), "1F0 1F1 1F2 1B2 1B1 1B0");
}

// With equal stages, backward twice as long as forward, and free transfers.
TEST(PipelineBubbleTest, EqualsTheClosedForms) {
  for (const int p : {2, 3, 4, 8}) {
    for (const int m : {8, 16, 32}) {
      const double behind = p - 1;
      SCOPED_TRACE(std::to_string(p) + " ranks, " + std::to_string(m) + " micro-batches");
      for (const char* name : {"gpipe_pp", "1f1b_pp", "pytorch_gpipe_pp", "pytorch_1f1b_pp"}) {
        EXPECT_NEAR(Timed(name, {p, 1, m}).BubbleFraction(), behind / (m + behind), 1e-12) << name;
        EXPECT_NEAR(Timed(name, {p, 1, m}).BubbleOverhead(), behind / m, 1e-12) << name;
      }
      EXPECT_NEAR(Timed("naive_pp", {p, 1, 1}).BubbleFraction(), behind / p, 1e-12);
      EXPECT_NEAR(Timed("zb1p_pp", {p, 1, m}).BubbleFraction(), behind / (3 * m + behind), 1e-12);
      if (m % p != 0) continue;
      for (const int v : {2, 4}) {
        EXPECT_NEAR(Timed("interleaved_1f1b_pp", {p, v, m}).BubbleFraction(),
                    behind / (v * m + behind), 1e-12);
      }
    }
  }
}

TEST(PipelineBubbleTest, ASlowStageAndSlowTransfersShow) {
  const PipelineShape shape{2, 1, 4};
  const Program program = Computing("gpipe_pp", shape);
  // Rank 1 works 4 x 6; rank 0 fills it for 1 and drains for 2.
  const Timeline slow = Simulate(program, shape, {{{1, 1, 1}, {2, 2, 2}}, 0});
  EXPECT_DOUBLE_EQ(slow.end, 27);
  EXPECT_DOUBLE_EQ(slow.ranks[0].busy, 12);
  EXPECT_DOUBLE_EQ(slow.ranks[1].busy, 24);
  // One transfer there and one back lengthen an even pipeline, the others are hidden.
  EXPECT_DOUBLE_EQ(Simulate(program, shape, {{{1, 1, 1}, {1, 1, 1}}, 0.5}).end, 15 + 1);
}

TEST(PipelineMemoryTest, InFlightAreAsManyAsTheMethodSays) {
  for (const int p : {2, 3, 4, 8}) {
    for (const int m : {1, 2, 7, 32}) {
      const Timeline all = Timed("gpipe_pp", {p, 1, m});
      const Timeline few = Timed("1f1b_pp", {p, 1, m});
      for (int rank = 0; rank < p; ++rank) {
        EXPECT_EQ(all.ranks[static_cast<size_t>(rank)].most_in_flight, m);
        EXPECT_EQ(few.ranks[static_cast<size_t>(rank)].most_in_flight, std::min(m, p - rank));
      }
    }
  }
}

TEST(PipelineTransfersTest, EveryProgramFinishes) {
  for (const StrategyRow& row : PipelineRows()) {
    const SchedulePolicy& policy = row.pipeline->policy;
    for (const int p : {2, 3, 4, 8}) {
      for (const int m : {1, 2, 3, 7, 8, 32}) {
        const PipelineShape shape{p, policy.StagesPerRank(), policy.whole_batch ? 1 : m};
        if (!CheckShape(policy, shape).empty()) continue;
        SCOPED_TRACE(std::string(row.name) + ", " + std::to_string(p) + " ranks, " +
                     std::to_string(m) + " micro-batches");
        const Program program = WithTransfers(std::string(row.name), shape);
        EXPECT_EQ(CheckProgram(program, shape), "");
        size_t transfers = 0;
        for (const auto& actions : program) {
          for (const Action& action : actions) transfers += IsTransfer(action.kind) ? 1 : 0;
        }
        EXPECT_EQ(transfers, static_cast<size_t>(4 * (shape.Stages() - 1) * shape.micro_batches));
      }
    }
  }
}

// Ranks that wait where a transfer stands, and take it as late as they can.
TEST(PipelineTransfersTest, DelayedReceivesFinishToo) {
  for (const StrategyRow& row : PipelineRows()) {
    const SchedulePolicy& policy = row.pipeline->policy;
    if (policy.Interleaves()) continue;
    for (const int p : {2, 3, 4, 8}) {
      for (const int m : {1, 2, 3, 7, 8, 32}) {
        const PipelineShape shape{p, 1, policy.whole_batch ? 1 : m};
        SCOPED_TRACE(std::string(row.name) + ", " + std::to_string(p) + " ranks, " +
                     std::to_string(m) + " micro-batches");
        EXPECT_EQ(
            CheckProgram(DelayReceives(WithTransfers(std::string(row.name), shape), shape), shape),
            "");
      }
    }
  }
  const PipelineShape shape{2, 1, 4};
  const Program program = DelayReceives(WithTransfers("1f1b_pp", shape), shape);
  EXPECT_EQ(Joined(program[0]),
            "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0F2 0SEND_F2 0RECV_B1 0B1 0F3 0SEND_F3 "
            "0RECV_B2 0B2 0RECV_B3 0B3");
  EXPECT_EQ(Joined(program[1]),
            "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1RECV_F2 1F2 1B2 1SEND_B2 "
            "1RECV_F3 1F3 1B3 1SEND_B3");
}

// A transfer removed, doubled, or exchanged with a later one of the same rank that it must not
// pass.
TEST(PipelineTransfersTest, BrokenProgramsAreRefused) {
  std::mt19937 random(7);
  const auto below = [&random](size_t end) {
    return std::uniform_int_distribution<size_t>(0, end - 1)(random);
  };
  const std::vector<StrategyRow> rows = PipelineRows();
  int refused = 0;
  while (refused < 600) {
    const StrategyRow& row = rows[below(rows.size())];
    const SchedulePolicy& policy = row.pipeline->policy;
    const int ranks = static_cast<int>(2 + below(4));
    const PipelineShape shape{ranks, policy.StagesPerRank(),
                              policy.whole_batch ? 1 : static_cast<int>(2 + below(7))};
    if (!CheckShape(policy, shape).empty()) continue;
    Program program = WithTransfers(std::string(row.name), shape);
    auto& actions = program[below(program.size())];
    std::vector<size_t> transfers;
    for (size_t i = 0; i < actions.size(); ++i) {
      if (IsTransfer(actions[i].kind)) transfers.push_back(i);
    }
    const size_t at = transfers[below(transfers.size())];
    const Action action = actions[at];
    const auto place = actions.begin() + static_cast<std::ptrdiff_t>(at);
    const int how = refused % 3;
    if (how == 0) actions.erase(place);
    if (how == 1) actions.insert(place, action);
    if (how == 2) {
      // The next one of the same kind and stage: the other end has them in their order.
      const auto later = std::find_if(place + 1, actions.end(), [&](const Action& other) {
        return other.kind == action.kind && other.stage == action.stage;
      });
      if (later == actions.end()) {
        if (policy.whole_batch) ++refused;  // has no second one
        continue;
      }
      std::iter_swap(place, later);
    }
    EXPECT_NE(CheckProgram(program, shape), "")
        << row.name << ", " << ActionText(action) << ", broken in way " << how;
    ++refused;
  }
}

TEST(PipelineTransfersTest, ACycleIsNamed) {
  const PipelineShape shape{2, 1, 2};
  Program program = Computing("gpipe_pp", shape);
  std::swap(program[0][1], program[0][2]);  // a backward before the forward that rank 1 waits for
  const auto refused = AddTransfers(program, shape);
  EXPECT_EQ(std::get<std::string>(refused),
            "the program cannot finish: rank 0 waits at 0B1 for 0F1 of rank 0");
  program = Computing("1f1b_pp", shape);
  std::swap(program[1][1], program[1][2]);
  std::swap(program[0][1], program[0][2]);
  EXPECT_EQ(std::get<std::string>(AddTransfers(program, shape)),
            "the program cannot finish: rank 0 waits at 0B0 for 1B0 of rank 1, rank 1 waits at "
            "1F1 for 0F1 of rank 0");
  EXPECT_THAT(CheckProgram({{{ActionKind::kForward, 0, 0}}, {}}, {2, 1, 1}),
              HasSubstr("never does 0B0"));
  EXPECT_EQ(CheckProgram({{{ActionKind::kForward, 1, 0}}, {}}, {2, 1, 1}), "rank 0 cannot do 1F0");
}

TEST(PipelineShapeTest, RefusalsNameTheNearestRightValue) {
  const auto check = [](const char* name, const PipelineShape& shape) {
    return CheckShape(PolicyOf(name), shape);
  };
  EXPECT_EQ(check("1f1b_pp", {1, 1, 4}), "a pipeline has stages on 2 ranks at least, not on 1");
  EXPECT_EQ(check("interleaved_1f1b_pp", {4, 2, 9}),
            "9 micro-batches do not divide into rounds of 4 ranks; 8 or 10 is right");
  EXPECT_EQ(check("1f1b_pp", {4, 1, 0}), "micro_batches is 0; 1 or more is right");
  EXPECT_EQ(check("naive_pp", {4, 1, 2}),
            "it takes the batch whole: micro_batches is 2; 1 is right");
  EXPECT_EQ(check("gpipe_pp", {4, 2, 2}),
            "stages_per_rank is 2; 1 is right: only interleaved programs have several stages a "
            "rank");
  EXPECT_EQ(check("interleaved_1f1b_pp", {4, 1, 8}), "stages_per_rank is 1; 2 or more is right");
  EXPECT_EQ(check("1f1b_pp", {4, 1, 1}), "");
}

// Two stages, four micro-batches, a forward of 1 and a backward of 2.
Bubble Explained(double second_stage, double transfer, double step) {
  const PipelineShape shape{2, 1, 4};
  const StageCosts costs{1, 1, 1};
  const StageCosts other{second_stage, second_stage, second_stage};
  return ExplainBubble(Computing("gpipe_pp", shape), shape,
                       {{costs, other}, transfer, 4 * 3 * (1 + second_stage), step});
}

TEST(BubbleTest, ItsPartsAddUpToWhatWasMeasured) {
  const Bubble ideal = Explained(1, 0, 15);  // (M + P - 1) times 3
  EXPECT_NEAR(ideal.measured, 0.2, 1e-12);
  EXPECT_NEAR(ideal.program, 0.2, 1e-12);
  EXPECT_NEAR(ideal.imbalance, 0, 1e-12);
  EXPECT_NEAR(ideal.transfer, 0, 1e-12);
  EXPECT_NEAR(ideal.rest, 0, 1e-12);
  // The second stage twice as long: 1, then its 4 times 6, then 2; of 54 the ranks work 36.
  const Bubble unequal = Explained(2, 0, 27);
  EXPECT_NEAR(unequal.program, 0.2, 1e-12);
  EXPECT_NEAR(unequal.program + unequal.imbalance, 1 - 36.0 / 54, 1e-12);
  EXPECT_NEAR(unequal.rest, 0, 1e-12);
  // Transfers of 0.5: once on the way in, once on the way back.
  const Bubble far = Explained(1, 0.5, 16);
  EXPECT_NEAR(far.imbalance, 0, 1e-12);
  EXPECT_NEAR(far.transfer, 1 - 24.0 / 32 - 0.2, 1e-12);
  EXPECT_NEAR(far.rest, 0, 1e-12);
  EXPECT_NEAR(Explained(1, 0, 20).rest, 1 - 24.0 / 40 - 0.2, 1e-12) << "a slow machine";
}

std::vector<int> Firsts(const SplitPlan& plan, const std::vector<double>& costs, int stages) {
  auto split = SplitBlocks(plan, costs, stages);
  const auto* sentence = std::get_if<std::string>(&split);
  EXPECT_EQ(sentence, nullptr) << *sentence;
  return std::get<std::vector<int>>(split);
}

TEST(PipelineSplitTest, EvenPutsMoreLayersOnEarlyStages) {
  const std::vector<double> distilbert(8, 1);  // embedding, 6 layers, head
  EXPECT_EQ(Firsts({}, distilbert, 2), (std::vector<int>{0, 4}));
  EXPECT_EQ(Firsts({}, distilbert, 3), (std::vector<int>{0, 3, 5}));
  EXPECT_EQ(Firsts({}, distilbert, 4), (std::vector<int>{0, 3, 5, 6}));
  EXPECT_EQ(Firsts({}, distilbert, 6), (std::vector<int>{0, 2, 3, 4, 5, 6}));
}

// Every way to cut some random models, compared with the one that was found.
TEST(PipelineSplitTest, ByCostIsTheBestThereIs) {
  std::mt19937 random(3);
  for (int repeat = 0; repeat < 50; ++repeat) {
    std::vector<double> costs;
    for (int block = 0; block < 8; ++block) costs.push_back(static_cast<double>(random() % 20));
    for (const int stages : {1, 2, 3, 4, 8}) {
      const auto worst_of = [&](std::vector<int> firsts) {
        firsts.push_back(8);
        double worst = 0;
        for (size_t s = 0; s + 1 < firsts.size(); ++s) {
          worst = std::max(worst, std::accumulate(costs.begin() + firsts[s],
                                                  costs.begin() + firsts[s + 1], 0.0));
        }
        return worst;
      };
      double best = std::accumulate(costs.begin(), costs.end(), 0.0);
      for (unsigned cuts = 0; cuts < 128; ++cuts) {  // bit b: a cut before block b + 1
        std::vector<int> firsts = {0};
        for (int block = 1; block < 8; ++block) {
          if ((cuts >> (block - 1)) & 1) firsts.push_back(block);
        }
        if (static_cast<int>(firsts.size()) == stages) best = std::min(best, worst_of(firsts));
      }
      const std::vector<int> found = Firsts({SplitKind::kByParameters}, costs, stages);
      EXPECT_EQ(static_cast<int>(found.size()), stages);
      EXPECT_TRUE(std::is_sorted(found.begin(), found.end()));
      EXPECT_DOUBLE_EQ(worst_of(found), best);
    }
  }
}

TEST(PipelineSplitTest, CutPointsAreTakenOrRefused) {
  const std::vector<double> costs(6, 1);
  EXPECT_EQ(Firsts({SplitKind::kAtCutPoints, {2, 5}}, costs, 3), (std::vector<int>{0, 2, 5}));
  const auto sentence = [&](const SplitPlan& plan, int stages) {
    return std::get<std::string>(SplitBlocks(plan, costs, stages));
  };
  EXPECT_EQ(sentence({SplitKind::kAtCutPoints, {5, 2}}, 3),
            "split is [5, 2]; [2, 5] is right: cut points ascend");
  EXPECT_EQ(sentence({SplitKind::kAtCutPoints, {2, 2}}, 3),
            "split is [2, 2]; each cut point once is right");
  EXPECT_EQ(sentence({SplitKind::kAtCutPoints, {2}}, 3),
            "split is [2]; 3 stages have 2 cut points, not 1");
  EXPECT_EQ(sentence({SplitKind::kAtCutPoints, {0, 6}}, 3),
            "split is [0, 6]; the model's 6 blocks are cut before a block from 1 to 5");
  EXPECT_EQ(sentence({}, 5),
            "a model of 4 layers cannot be cut into 5 stages; 4 or fewer is right");
  EXPECT_EQ(sentence({SplitKind::kByParameters}, 7),
            "a model of 6 blocks cannot be cut into 7 stages; 6 or fewer is right");
}

}  // namespace
}  // namespace regatta
