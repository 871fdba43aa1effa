#include "collectives/choose.hpp"
#include "collectives/plan.hpp"
#include "core/error.hpp"
#include "tests/collectives/plans.hpp"
#include "tests/support/refusal.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardmark {
namespace {

using testing::HasSubstr;

TEST(PlanText, Golden) {
  const Plan plan = make_plan(Collective::all_reduce, "ring", std::vector<int>{0, 0});
  EXPECT_EQ(to_text(plan),
            "plan all_reduce ring ranks 2 root 0 slots_per_block 2 scratch 0\n"
            "rank 0\n"
            "  copy in0 2 to out0\n"
            "  send out1 1 to 1 receive out0 1 from 1 reduce\n"
            "  send out0 1 to 1 receive out1 1 from 1\n"
            "rank 1\n"
            "  copy in0 2 to out0\n"
            "  send out0 1 to 0 receive out1 1 from 0 reduce\n"
            "  send out1 1 to 0 receive out0 1 from 0\n");
}

TEST(PlanText, IsReadBackAsItWas) {
  for (const int n : {1, 2, 3, 4, 6})
    for_each_plan(n, [](const Plan& plan) {
      const std::string text = to_text(plan);
      const Plan again = parse_plan(text);
      EXPECT_EQ(to_text(again), text);
      EXPECT_TRUE(validate(again).empty()) << text;
    });
}

TEST(PlanText, CommentsAndBlankLinesAreAllowed) {
  const Plan plan = parse_plan(
      "# by hand\n\nplan barrier mine ranks 1 root 0 slots_per_block 1 scratch 0 # one rank\n"
      "rank 0\n");
  EXPECT_EQ(plan.algorithm, "mine");
  EXPECT_TRUE(plan.steps.empty());
}

std::string whole_problem_of(const std::string& text) {
  return test::refusal([&] { return parse_plan(text); });
}

std::string problem_of(const std::string& steps) {
  return whole_problem_of("plan all_reduce mine ranks 2 root 0 slots_per_block 2 scratch 0\n" +
                          steps);
}

TEST(PlanText, ErrorsNameTheLine) {
  EXPECT_EQ(problem_of("rank 0\n  copy in0 2 onto out0\n"),
            "plan, line 3: 'onto' where 'to' should be");
  EXPECT_EQ(problem_of("rank 0\n  jump\n"),
            "plan, line 3: 'jump' where copy, send, receive or rank should be");
  EXPECT_EQ(problem_of("rank 0\n  copy in5 1 to out0\n"),
            "plan, line 3: there is no slot in5; in has 2");
  EXPECT_EQ(problem_of("rank 0\n  send in0 1 to 7\n"), "plan, line 3: rank 7 is not one of the 2");
  EXPECT_EQ(problem_of("rank 0\n  copy in0 2 to out0 quickly\n"),
            "plan, line 3: 'quickly' after the end of the line");
  EXPECT_EQ(problem_of("rank 1\n"), "plan, line 2: rank 1 comes where rank 0 should");
  EXPECT_THAT(problem_of("rank 0\n"), HasSubstr("there are no steps of rank 1"));
  EXPECT_THAT(problem_of("rank 0\nrank 1\nrank 2\n"), HasSubstr("line 4: there are only 2 ranks"));
  EXPECT_THAT(whole_problem_of(""), HasSubstr("the plan is empty"));
  EXPECT_THAT(whole_problem_of("# nothing\n\n"), HasSubstr("the plan is empty"));
  EXPECT_THAT(whole_problem_of("\x7f"
                               "ELF"),
              testing::StartsWith("the plan is not text"));
  EXPECT_THROW((void)parse_plan("plan all_reduce x ranks 2000000000 root 0 slots_per_block 9 "
                                "scratch 0\n"),
               InputError);
}

TEST(PlanSvg, HasRanksAndAnArrowPerMessage) {
  const Plan plan = make_plan(Collective::all_reduce, "ring", std::vector<int>{0, 0, 0});
  const std::string svg = to_svg(plan);
  EXPECT_THAT(svg, HasSubstr("rank 2"));
  std::size_t arrows = 0;
  for (std::size_t at = 0; (at = svg.find("marker-end", at)) != std::string::npos; ++at) ++arrows;
  EXPECT_EQ(arrows, 12U);
}

TEST(ChoiceTable, PicksTheRange) {
  const ChoiceTable table = parse_choice_table(
      "# measured\ncollective,group_size,min_bytes,max_bytes,algorithm\n"
      "all_reduce,4,1025,,ring\n"
      "all_reduce,4,0,1024,recursive_doubling\n"
      "broadcast,4,0,99,binomial\n");
  EXPECT_EQ(table.pick(Collective::all_reduce, 4, 0), "recursive_doubling");
  EXPECT_EQ(table.pick(Collective::all_reduce, 4, 1024), "recursive_doubling");
  EXPECT_EQ(table.pick(Collective::all_reduce, 4, 1025), "ring");
  EXPECT_EQ(table.pick(Collective::all_reduce, 4, std::int64_t{1} << 40), "ring");
  EXPECT_EQ(table.pick(Collective::all_reduce, 2, 8), "native");
  EXPECT_EQ(table.pick(Collective::broadcast, 4, 100), "native");
  EXPECT_EQ(table.pick(Collective::gather, 4, 8), "native");
  EXPECT_EQ(to_text(parse_choice_table(to_text(table))), to_text(table));
  EXPECT_EQ(ChoiceTable{}.pick(Collective::all_reduce, 2, 8), "native");
}

std::string table_problem(const std::string& rows) {
  return test::refusal([&] {
    return parse_choice_table("collective,group_size,min_bytes,max_bytes,algorithm\n" + rows);
  });
}

TEST(ChoiceTable, ErrorsNameTheLine) {
  EXPECT_THAT(table_problem("all_reduce,4,0,8\n"), HasSubstr("line 2: 4 fields"));
  EXPECT_THAT(table_problem("all_reduce,4,0,8,bruck\n"), HasSubstr("no algorithm 'bruck'"));
  EXPECT_THAT(table_problem("all_reduce,4,9,8,ring\n"), HasSubstr("the range ends at 8"));
  EXPECT_THAT(table_problem("all_reduce,4,x,8,ring\n"), HasSubstr("'x' is not a number"));
  EXPECT_THAT(table_problem("all_reduce,4,0,8,ring\nall_reduce,4,8,9,native\n"),
              HasSubstr("from 8 bytes: the range before ends at 8"));
  EXPECT_THROW((void)parse_choice_table("size,algorithm\n"), InputError);
}

}  // namespace
}  // namespace shardmark
