#include "coordinator/experiment/matrix.h"

#include <gtest/gtest.h>

namespace regatta {
namespace {

YamlNode Scalar(const std::string& text) {
  YamlNode node;
  node.kind = YamlNode::Kind::kScalar;
  node.text = text;
  return node;
}

Axis MakeAxis(const std::string& key, const std::vector<std::string>& values) {
  Axis axis{key, {}};
  for (const std::string& value : values) axis.values.push_back(Scalar(value));
  return axis;
}

TEST(MatrixTest, LastAxisVariesFastest) {
  const auto all =
      ExpandMatrix({MakeAxis("strategy", {"a", "b"}), MakeAxis("ranks", {"1", "2", "3"})}, 100);
  ASSERT_TRUE(all.ok());
  std::vector<std::string> names;
  for (const Combination& combination : *all) names.push_back(CombinationName(combination));
  EXPECT_EQ(names, (std::vector<std::string>{"strategy=a ranks=1", "strategy=a ranks=2",
                                             "strategy=a ranks=3", "strategy=b ranks=1",
                                             "strategy=b ranks=2", "strategy=b ranks=3"}));
}

TEST(MatrixTest, NoAxisIsOneCombination) {
  const auto all = ExpandMatrix({}, 100);
  ASSERT_TRUE(all.ok());
  ASSERT_EQ(all->size(), 1u);
  EXPECT_EQ(CombinationName((*all)[0]), "");
}

TEST(MatrixTest, ABombIsCountedBeforeItIsBuilt) {
  std::vector<Axis> axes(40, MakeAxis("x", {"1", "2", "3", "4"}));
  EXPECT_EQ(ExpandMatrix(axes, 10000).status().message(),
            "the matrix has more than 10000 combinations (limits.max_runs)");
  EXPECT_TRUE(ExpandMatrix({MakeAxis("x", std::vector<std::string>(100, "1")),
                            MakeAxis("y", std::vector<std::string>(100, "1"))},
                           10000)
                  .ok());
}

}  // namespace
}  // namespace regatta
