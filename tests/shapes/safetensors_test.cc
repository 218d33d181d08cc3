#include "worker/shapes/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>

#include "tests/testing/temporary_folder.h"

namespace regatta {
namespace {

using testing::HasSubstr;

// Not inlined: GCC 12 would see overruns in std::string's own copies (gcc.gnu.org PR 105329).
[[gnu::noinline]] std::string MakeFile(const std::string& header, const std::string& data,
                                       int64_t claimed_length = -1) {
  const uint64_t length =
      claimed_length < 0 ? header.size() : static_cast<uint64_t>(claimed_length);
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file.append(header).append(data);
}

class SafetensorsTest : public testing::Test {
 protected:
  [[gnu::noinline]] std::string ErrorOf(const std::string& content) {
    try {
      SafetensorsFile file(folder_.Write("f.safetensors", content));
    } catch (const std::runtime_error& e) {
      return e.what();
    }
    return "";
  }
  TemporaryFolder folder_;
};

TEST_F(SafetensorsTest, ReadsTensorsAndMetadata) {
  const std::string header =
      R"({"__metadata__": {"end_token": "102"}, "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
          "b": {"dtype": "I64", "shape": [], "data_offsets": [8, 16]}})";
  const float values[] = {1.5F, -2, 0, 0};
  std::vector<char> data(sizeof(values));
  std::memcpy(data.data(), values, sizeof(values));
  const SafetensorsFile file(
      folder_.Write("f", MakeFile(header, std::string(data.begin(), data.end()))));
  EXPECT_EQ(file.Metadata().at("end_token"), "102");
  float second = 0;
  std::memcpy(&second, file.Get("a").data + 4, 4);
  EXPECT_EQ(second, -2);
  EXPECT_EQ(file.Get("b").bytes, 8u);
  try {
    (void)file.Get("c");
    FAIL();
  } catch (const std::runtime_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("has no tensor 'c'; it holds 2, the first is 'a'"));
  }
}

TEST_F(SafetensorsTest, BadFilesGetASentence) {
  const std::string good = R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})";
  const std::string data(8, 'x');
  EXPECT_EQ(ErrorOf(MakeFile(good, data)), "");
  EXPECT_THAT(ErrorOf(""), HasSubstr("is no safetensors file: 0 bytes"));
  EXPECT_THAT(ErrorOf("1234567"), HasSubstr("is no safetensors file: 7 bytes"));
  EXPECT_THAT(ErrorOf("PK\x03\x04 some zip archive, not a model"),
              HasSubstr("is no safetensors file, or cut off"));
  EXPECT_THAT(ErrorOf(MakeFile(good, data, 1000)),
              HasSubstr("cut off: its header would have 1000 bytes"));
  EXPECT_THAT(ErrorOf(MakeFile(good, "1234")),
              HasSubstr("tensor 'a' ends at byte 8 of 4: the file is cut off"));
  EXPECT_THAT(ErrorOf(MakeFile("[1, 2]", "")), HasSubstr("not a JSON object"));
  EXPECT_THAT(ErrorOf(MakeFile(R"({"a": 1})", "")), HasSubstr("tensor 'a' lacks dtype"));
  EXPECT_THAT(
      ErrorOf(MakeFile(R"({"a": {"dtype": "F8", "shape": [2], "data_offsets": [0, 8]}})", data)),
      HasSubstr("unknown dtype F8"));
  EXPECT_THAT(
      ErrorOf(MakeFile(R"({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}})", data)),
      HasSubstr("do not match its shape"));
  EXPECT_THAT(
      ErrorOf(MakeFile(R"({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}})", data)),
      HasSubstr("not made of sizes"));
  EXPECT_THAT(
      ErrorOf(MakeFile(
          R"({"a": {"dtype": "F32", "shape": [4611686018427387905, 4], "data_offsets": [0, 16]}})",
          data)),
      HasSubstr("larger than the file"));
  EXPECT_THAT(
      ErrorOf(MakeFile(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}})", data)),
      HasSubstr("offsets"));
  EXPECT_THAT(
      ErrorOf(MakeFile(
          R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [18446744073709551608, 0]}})",
          data)),
      HasSubstr("offsets"));
}

TEST_F(SafetensorsTest, EveryPrefixAndEveryFlippedByteIsAnswered) {
  const std::string good =
      MakeFile(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})", "12345678");
  for (size_t i = 0; i < good.size(); ++i) {
    EXPECT_NE(ErrorOf(good.substr(0, i)), "") << i;
    for (const char c : {'\0', '\x7f', '"', '9'}) {
      std::string broken = good;
      broken[i] = c;
      (void)ErrorOf(broken);
    }
  }
}

TEST(SafetensorsFileTest, AMissingFileIsNamed) {
  try {
    SafetensorsFile file("/nowhere/model.safetensors");
    FAIL();
  } catch (const std::runtime_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("/nowhere/model.safetensors cannot be read: No such file"));
  }
}

}  // namespace
}  // namespace regatta
