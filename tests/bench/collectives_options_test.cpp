#include "bench/collectives/cases.hpp"
#include "bench/collectives/options.hpp"
#include "tests/support/refusal.hpp"

#include <gmock/gmock.h>

#include <fstream>

namespace shardmark::bench::collectives {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string problem_of_options(const std::vector<std::string>& arguments) {
  return test::refusal([&] { (void)parse_options(arguments); });
}

World world_of(const Options& options, int ranks) {
  return make_world(options, 0, std::vector<std::string>(static_cast<std::size_t>(ranks), "a"));
}
std::vector<Series> series_of(const std::vector<std::string>& arguments, int ranks) {
  const Options options = parse_options(arguments);
  return expand(options, world_of(options, ranks));
}
std::string problem_of_series(const std::vector<std::string>& arguments, int ranks) {
  return test::refusal([&] { (void)series_of(arguments, ranks); });
}

TEST(CollectivesOptions, FlagsMeanWhatTheyMeanInNcclTests) {
  const Options options =
      parse_options({"all_reduce", "-b", "8",  "-e", "64M", "-f",  "2",  "-n",       "20",
                     "-w",         "5",  "-c", "0",  "-o",  "max", "-d", "bfloat16", "-a",
                     "1",          "-z", "1",  "-g", "1",   "-t",  "1",  "-m",       "4"});
  EXPECT_THAT(options.collectives, ElementsAre(Collective::all_reduce));
  EXPECT_EQ(options.min_bytes, 8);
  EXPECT_EQ(options.max_bytes, 64 << 20);
  EXPECT_EQ(options.step_factor, 2);
  EXPECT_EQ(options.iterations, 20);
  EXPECT_EQ(options.checks, 0);
  EXPECT_THAT(options.reductions, ElementsAre(Reduction::max));
  EXPECT_THAT(options.dtypes, ElementsAre(DType::bf16));
  EXPECT_EQ(options.scope, Scope::average);
  EXPECT_TRUE(options.blocking);
  EXPECT_EQ(options.aggregate, 4);
  EXPECT_EQ(parse_options({"all_reduce"}).scope, Scope::maximum);
  EXPECT_EQ(parse_options({"all-reduce", "--minbytes", "1K"}).min_bytes, 1024);
}

TEST(CollectivesOptions, ListsAndAll) {
  EXPECT_EQ(parse_options({"all"}).collectives.size(), num_collectives);
  EXPECT_EQ(parse_options({"reduce", "-d", "all"}).dtypes.size(), num_dtypes);
  EXPECT_EQ(parse_options({"reduce", "-o", "all"}).reductions.size(), 5U);
  EXPECT_THAT(parse_options({"reduce", "-d", "float,f32,half"}).dtypes,
              ElementsAre(DType::f32, DType::f16));
  const Options skewed = parse_options({"all_reduce", "--skew-us", "5000:rank=1"});
  EXPECT_EQ(skewed.skew_us, 5000);
  EXPECT_EQ(skewed.skew_rank, 1);
}

TEST(CollectivesOptions, BadInputSaysWhatWouldWork) {
  EXPECT_THAT(problem_of_options({}), HasSubstr("no collective named"));
  EXPECT_THAT(problem_of_options({"all_reduc"}), HasSubstr("did you mean all_reduce?"));
  EXPECT_THAT(problem_of_options({"all_reduce", "-b", "64", "-e", "8"}),
              HasSubstr("is above -e 8"));
  EXPECT_THAT(problem_of_options({"all_reduce", "-f", "1"}), HasSubstr("above 1"));
  EXPECT_THAT(problem_of_options({"all_reduce", "-b", "99999999999999999G"}),
              HasSubstr("too large"));
  EXPECT_THAT(problem_of_options({"all_reduce", "-b", "0"}), HasSubstr("at least 1"));
  EXPECT_THAT(problem_of_options({"all_reduce", "-d", "uint8"}), HasSubstr("is none of float"));
  EXPECT_THAT(problem_of_options({"all_reduce", "-g", "2"}), HasSubstr("mpirun -n"));
  EXPECT_THAT(problem_of_options({"all_reduce", "--algorithm", "rng"}), HasSubstr("mean ring?"));
  EXPECT_THAT(problem_of_options({"all_reduce", "--algorithm", "auto"}), HasSubstr("--tuning"));
  EXPECT_THAT(problem_of_options({"all_reduce", "--tune", "t"}), HasSubstr("--algorithm all"));
  EXPECT_THAT(problem_of_options({"all_reduce", "--tune", "t", "--algorithm", "auto,ring"}),
              HasSubstr("--algorithm all"));
  EXPECT_THAT(problem_of_options({"all_reduce", "-f", "-2"}), HasSubstr("for example -f 2"));
  EXPECT_THAT(problem_of_options({"all_reduce", "-b", "1T"}), HasSubstr("1024G for a T"));
  EXPECT_THAT(problem_of_options({"all_reduce", "--progress", "thread"}),
              HasSubstr("--with-matmul 512,512,512"));
  EXPECT_THAT(problem_of_options({"all_reduce", "--progress", "both"}), HasSubstr("poll"));
  EXPECT_THAT(problem_of_options({"all_reduce", "--pattern", "ping"}), HasSubstr("of send_recv"));
  EXPECT_THAT(problem_of_options({"all_reduce", "--tuning", "t"}), HasSubstr("--algorithm auto"));
  EXPECT_THAT(problem_of_options({"all_reduce", "--groups", "tp:4"}), HasSubstr("tp=4,dp=2"));
  EXPECT_THAT(problem_of_options({"all_reduce", "--nonsense"}), HasSubstr("unknown option"));
}

TEST(CollectivesCases, SizesGoByFactorOrStep) {
  EXPECT_THAT(sizes_of(parse_options({"all_reduce", "-b", "8", "-e", "64", "-f", "2"})),
              ElementsAre(8, 16, 32, 64));
  EXPECT_THAT(sizes_of(parse_options({"all_reduce", "-b", "1M", "-e", "3M"})),
              ElementsAre(1 << 20, 2 << 20, 3 << 20));
  EXPECT_THAT(sizes_of(parse_options({"all_reduce", "-b", "8", "-e", "20", "-f", "1.01"})),
              ElementsAre(8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20));
  EXPECT_THAT(test::refusal([] {
                (void)sizes_of(parse_options({"all_reduce", "-b", "4", "-e", "1G", "-i", "4"}));
              }),
              HasSubstr("give a factor"));
}

TEST(CollectivesCases, SizeIsTheTotalAndCountTheBlock) {
  const std::vector<Series> all = series_of({"all_gather", "-b", "1K", "-e", "1K"}, 4);
  EXPECT_EQ(all.front().sizes.front().count, 64);
  EXPECT_EQ(all.front().sizes.front().size_bytes, 1024);
  // 8 bytes do not hold an element per rank: the smallest that does, once.
  const std::vector<Series> few = series_of({"all_gather", "-b", "8", "-e", "16", "-f", "2"}, 4);
  EXPECT_EQ(few.front().sizes.size(), 1U);
  EXPECT_EQ(few.front().sizes.front().size_bytes, 16);
  EXPECT_THAT(problem_of_series({"all_gather", "-b", "8", "-e", "8"}, 4),
              HasSubstr("all_gather takes -e 16 or more"));
}

TEST(CollectivesCases, AutoSaysWhereItsTableHasNoRow) {
  const std::string path = testing::TempDir() + "half_a_table";
  std::ofstream{path} << "collective,group_size,min_bytes,max_bytes,algorithm\n"
                         "all_reduce,2,0,16,recursive_doubling\n";
  const auto notice_of = [&](const std::string& largest) {
    return series_of({"all_reduce", "--algorithm", "auto", "--tuning", path, "-b", "8", "-e",
                      largest, "-f", "2"},
                     2)
        .front()
        .ways.front()
        .notice;
  };
  EXPECT_EQ(notice_of("16"), "");
  EXPECT_THAT(notice_of("64"), HasSubstr("at 2 of 4 sizes (32 to 64 B): native"));
}

TEST(CollectivesCases, WhatDoesNotExistIsAnErrorAloneAndSkippedInASweep) {
  EXPECT_THAT(problem_of_series({"all_reduce", "-b", "6", "-e", "8"}, 2),
              HasSubstr("not a whole number of float"));
  const std::vector<Series> types =
      series_of({"all_reduce", "-b", "4", "-e", "8", "-f", "2", "-d", "float,double"}, 2);
  EXPECT_EQ(types[0].skip_reason, "");
  EXPECT_THAT(types[1].skip_reason, HasSubstr("double"));
  EXPECT_THAT(problem_of_series({"all_reduce", "--algorithm", "bruck"}, 2),
              HasSubstr("there is no algorithm 'bruck' for all_reduce"));
  const std::vector<Series> ways =
      series_of({"all_reduce,all_gather", "--algorithm", "native,bruck"}, 2);
  EXPECT_NE(ways[0].ways[1].skip_reason, "");
  EXPECT_EQ(ways[1].ways[1].skip_reason, "");
  EXPECT_THAT(problem_of_series({"broadcast", "-r", "2"}, 2), HasSubstr("roots are 0 to 1"));
  EXPECT_THAT(problem_of_series({"all_reduce", "--groups", "tp=2,dp=2"}, 6),
              HasSubstr("grid of 4 ranks, but there are 6"));
}

TEST(CollectivesCases, GroupsAreOfTheAxis) {
  const Options options = parse_options({"all_reduce", "--groups", "tp=2,dp=3", "--axis", "dp"});
  const World world = world_of(options, 6);
  EXPECT_EQ(world.group.size, 3);
  EXPECT_EQ(world.num_groups, 2);
  EXPECT_EQ(world.group.stride, 2);
}

TEST(CollectivesCases, UnevenCountsHaveEmptyBlocks) {
  const std::vector<std::int64_t> counts = uneven_counts(4, 10);
  EXPECT_EQ(counts.size(), 16U);
  EXPECT_THAT(counts, testing::Contains(0));
  EXPECT_THAT(counts, testing::Contains(20));
  EXPECT_GE(heaviest_count(4), 4);
}

TEST(CollectivesCases, VariantsHaveInPlaceWhereThereIsOne) {
  EXPECT_EQ(variants_of(series_of({"all_reduce"}, 2).front(), true).size(), 2U);
  EXPECT_EQ(variants_of(series_of({"all_reduce"}, 2).front(), false).size(), 1U);
  EXPECT_EQ(variants_of(series_of({"all_to_all"}, 2).front(), true).size(), 1U);
}

}  // namespace
}  // namespace shardmark::bench::collectives
