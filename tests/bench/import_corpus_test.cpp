#include "bench/collectives/import.hpp"
#include "bench/harness/csv.hpp"
#include "core/error.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <iomanip>
#include <sstream>

namespace shardmark::bench::collectives {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

void expect_same(const std::optional<double>& value, const std::string& text) {
  if (text == "N/A") {
    EXPECT_FALSE(value);
    return;
  }
  ASSERT_TRUE(value);
  EXPECT_EQ(*value, std::stod(text));
}

/// "1024: 10.00 0.10 0.10 0 20.00 0.05 0.05 0"
void expect_placements(const ImportedRow& out_of_place, const ImportedRow& in_place,
                       const std::string& truth) {
  std::istringstream in{truth};
  std::string size;
  in >> size;
  EXPECT_EQ(std::to_string(out_of_place.bytes) + ':', size);
  for (const ImportedRow* row : {&out_of_place, &in_place}) {
    std::string time, algbw, busbw, error;
    in >> time >> algbw >> busbw >> error;
    expect_same(row->time_us, time);
    expect_same(row->algbw_GBps, algbw);
    expect_same(row->busbw_GBps, busbw);
    expect_same(row->max_error ? row->max_error : row->num_wrong, error);
  }
}

// Logs of others, with a table of what is in them: not part of this repository.
class ImportCorpus : public testing::Test {
 protected:
  void SetUp() override {
    const char* corpus = std::getenv("SHARDMARK_TRACE_CORPUS");
    if (corpus == nullptr) GTEST_SKIP() << "SHARDMARK_TRACE_CORPUS names no folder of logs";
    folder_ = corpus;
  }
  void load(const std::string& name) {
    const std::string text = read_file(folder_ + "/text/" + name);
    std::istringstream log{text};
    problems_.clear();
    rows_ = import_log(log, problems_);
    lines_.assign(1, "");
    std::istringstream in{text};
    for (std::string line; std::getline(in, line);) lines_.push_back(line);
  }
  [[nodiscard]] const std::string& line_of(const ImportedRow& row) const {
    return lines_[static_cast<std::size_t>(row.line)];
  }
  void expect_osu(const std::vector<std::string>& truth) const {
    ASSERT_THAT(rows_, SizeIs(std::stoul(truth[3])));
    EXPECT_THAT(problems_, SizeIs(std::stoul(truth[4])));
    EXPECT_EQ(rows_.front().title, truth[2]);
    EXPECT_THAT(line_of(rows_.front()), HasSubstr(truth[5]));
    EXPECT_THAT(line_of(rows_.back()), HasSubstr(truth[6]));
  }
  void expect_nccl(const std::vector<std::string>& truth) const {
    const std::size_t complete = std::stoul(truth[3]);
    ASSERT_THAT(rows_, SizeIs(2 * complete));
    if (complete == 0) return;
    double busbw = 0;
    int wrong_rows = 0;
    for (std::size_t r = 0; r < 2 * complete; r += 2) {
      const ImportedRow &first = rows_[r], &second = rows_[r + 1];
      ASSERT_EQ(first.line, second.line);
      const std::string& line = line_of(first);
      // The eight last fields.
      std::size_t begin = line.size();
      for (int field = 0; field < 8; ++field)
        begin = line.find_last_of(' ', line.find_last_not_of(' ', begin - 1));
      expect_placements(first, second, message(first.bytes, ": ", line.substr(begin)));
      busbw += *first.busbw_GBps + *second.busbw_GBps;
      wrong_rows += first.num_wrong.value_or(0) + second.num_wrong.value_or(0) > 0 ? 1 : 0;
      EXPECT_THAT(truth[2], testing::EndsWith(message("ranks=", first.ranks.value_or(0))));
    }
    expect_placements(rows_[0], rows_[1], truth[5]);
    expect_placements(rows_[2 * complete - 2], rows_[2 * complete - 1], truth[6]);
    std::ostringstream mean;
    mean << "mean_busbw=" << std::fixed << std::setprecision(3)
         << busbw / (2.0 * static_cast<double>(complete));
    EXPECT_THAT(truth[9], testing::EndsWith(mean.str()));
    EXPECT_EQ(wrong_rows > 0, truth[8].find("FAILED") != std::string::npos);
  }

  std::string folder_;
  std::vector<ImportedRow> rows_;
  Problems problems_;
  std::vector<std::string> lines_;  ///< from 1
};

TEST_F(ImportCorpus, EveryRowIsTheTruthTables) {
  const auto truth = parse_csv(read_file(folder_ + "/truth/text_logs.csv"));
  ASSERT_GT(truth.size(), 1U);
  for (std::size_t i = 1; i < truth.size(); ++i) {
    SCOPED_TRACE(truth[i][0]);
    load(truth[i][0]);
    truth[i][1] == "osu" ? expect_osu(truth[i]) : expect_nccl(truth[i]);
  }
}

}  // namespace
}  // namespace shardmark::bench::collectives
