#include "strategies/layers.h"

#include <gtest/gtest.h>

#include <functional>

namespace regatta {
namespace {

// A layer of `x` and weights.
using Layer = std::function<at::Tensor(const std::vector<at::Tensor>& leaves, const Batch& batch)>;

std::vector<at::Tensor> GradientsOfSquares(const Layer& layer, std::vector<at::Tensor> leaves,
                                           WeightGradients* weight_gradients) {
  Batch batch;
  batch.weight_gradients = weight_gradients;
  for (at::Tensor& leaf : leaves) {
    leaf = leaf.clone();
    leaf.set_requires_grad(leaf.is_floating_point());
  }
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    layer(leaves, batch).square().sum().backward();
    if (weight_gradients == nullptr) continue;
    if (micro_batch == 0) {
      EXPECT_EQ(leaves.back().grad().defined(), weight_gradients->AtOnce());
    }
    weight_gradients->Make();
    weight_gradients->Make();  // has nothing left
  }
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& leaf : leaves) gradients.push_back(leaf.grad());
  return gradients;
}

// `leaves`: the input first, a weight last.
void ExpectSameGradients(const Layer& layer, const std::vector<at::Tensor>& leaves) {
  const std::vector<at::Tensor> autograds = GradientsOfSquares(layer, leaves, nullptr);
  for (const auto when : {WeightGradients::When::kAtOnce, WeightGradients::When::kLater}) {
    WeightGradients weight_gradients(when);
    const std::vector<at::Tensor> ours = GradientsOfSquares(layer, leaves, &weight_gradients);
    for (size_t i = 0; i < leaves.size(); ++i) {
      ASSERT_EQ(autograds[i].defined(), ours[i].defined()) << i;
      if (!autograds[i].defined()) continue;
      EXPECT_TRUE(at::allclose(ours[i], autograds[i], 1e-5, 1e-5)) << "leaf " << i;
      EXPECT_GT(autograds[i].abs().max().item<double>(), 0.1);
    }
  }
}

TEST(WeightGradientsTest, EqualAutograds) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({3, 5, 8});
  const Layer with_bias = [](const auto& leaves, const Batch& batch) {
    return Linear(leaves[0], leaves[1], leaves[2], batch);
  };
  ExpectSameGradients(with_bias, {x, at::randn({6, 8}), at::randn({6})});
  ExpectSameGradients(with_bias, {at::randn({4, 8}), at::randn({6, 8}), at::randn({6})});
  ExpectSameGradients(
      [](const auto& leaves, const Batch& batch) {
        return Linear(leaves[0], leaves[1], std::nullopt, batch);
      },
      {x, at::randn({6, 8})});
  ExpectSameGradients(
      [](const auto& leaves, const Batch& batch) {
        return LayerNorm(leaves[0] * 2, leaves[1], leaves[2], 1e-5, batch);
      },
      {x, at::randn({8}), at::randn({8})});
  ExpectSameGradients(
      [](const auto& leaves, const Batch& batch) {
        return RmsNorm(leaves[0] * 2, leaves[1], 1e-5, batch);
      },
      {x, at::randn({8})});
  ExpectSameGradients([](const auto& leaves,
                         const Batch& batch) { return Embedding(leaves[1], leaves[0], 2, batch); },
                      {at::tensor({1, 2, 3, 1, 0, 2}, at::kLong).view({2, 3}), at::randn({5, 8})});
}

Batch Rows(const std::vector<int64_t>& ids, int64_t seed = 1, int64_t step = 0) {
  Batch batch;
  batch.row_ids = at::tensor(ids, at::kLong);
  batch.dropout = {seed, step};
  return batch;
}

TEST(DropoutTest, DropsItsShareAndScalesTheRest) {
  const at::Tensor ones = at::ones({40, 25, 100});
  std::vector<int64_t> ids(40);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  for (const double probability : {0.1, 0.5}) {
    const at::Tensor dropped = Dropout(ones, {0, probability}, Rows(ids));
    EXPECT_NEAR(dropped.eq(0).to(at::kDouble).mean().item<double>(), probability, 0.005);
    EXPECT_NEAR(dropped.max().item<double>(), 1 / (1 - probability), 1e-6);
    EXPECT_NEAR(dropped.mean().item<double>(), 1, 0.01) << "the expected value stays";
    // No row, position or element is dropped more often than others.
    for (const int64_t others : {0, 1, 2}) {
      std::vector<int64_t> averaged;
      for (int64_t d = 0; d < 3; ++d) {
        if (d != others) averaged.push_back(d);
      }
      const at::Tensor shares = dropped.eq(0).to(at::kDouble).mean(averaged);
      const double elements = static_cast<double>(ones.numel() / ones.size(others));
      const double deviation = std::sqrt(probability * (1 - probability) / elements);
      EXPECT_LT((shares - probability).abs().max().item<double>(), 5 * deviation) << others;
    }
  }
  EXPECT_TRUE(at::equal(Dropout(ones, {0, 0.5}, Batch()), ones)) << "evaluation drops nothing";
}

// Cut however, padded however.
TEST(DropoutTest, AMaskBelongsToItsRow) {
  const at::Tensor ones = at::ones({3, 2, 6, 6});
  const at::Tensor all = Dropout(ones, {4, 0.5}, Rows({7, 8, 9}));
  const at::Tensor part = Dropout(ones.narrow(0, 0, 2), {4, 0.5}, Rows({9, 7}));
  EXPECT_TRUE(at::equal(part[0], all[2]));
  EXPECT_TRUE(at::equal(part[1], all[0]));
  const at::Tensor shorter = Dropout(at::ones({3, 2, 4, 4}), {4, 0.5}, Rows({7, 8, 9}));
  EXPECT_TRUE(at::equal(shorter, all.narrow(2, 0, 4).narrow(3, 0, 4)));
  EXPECT_FALSE(at::equal(all[0], all[1]));
  EXPECT_FALSE(at::equal(all, Dropout(ones, {5, 0.5}, Rows({7, 8, 9})))) << "another site";
  EXPECT_FALSE(at::equal(all, Dropout(ones, {4, 0.5}, Rows({7, 8, 9}, 2)))) << "another seed";
  EXPECT_FALSE(at::equal(all, Dropout(ones, {4, 0.5}, Rows({7, 8, 9}, 1, 1)))) << "another step";
}

TEST(AttentionTest, TheExplicitFormIsTheKernels) {
  at::manual_seed(4);
  const at::Tensor query = at::randn({2, 3, 5, 8});
  const at::Tensor key = at::randn({2, 3, 5, 8});
  const at::Tensor value = at::randn({2, 3, 5, 8});
  const at::Tensor bias =
      at::zeros({2, 1, 5, 5}).masked_fill(at::ones({5, 5}, at::kBool).triu(2), -1e30);
  const DropoutSite barely = {0, 1e-9};  // nothing is dropped
  for (const bool causal : {false, true}) {
    const at::Tensor mask = causal ? at::Tensor() : bias;
    EXPECT_TRUE(at::allclose(Attention(query, key, value, mask, causal, barely, Rows({0, 1})),
                             Attention(query, key, value, mask, causal, barely, Batch()), 1e-5,
                             1e-6));
  }
  EXPECT_FALSE(at::allclose(Attention(query, key, value, {}, true, {0, 0.5}, Rows({0, 1})),
                            Attention(query, key, value, {}, true, {0, 0.5}, Batch()), 1e-5, 1e-6));
}

}  // namespace
}  // namespace regatta
