#include "bench/analyze/json.hpp"

#include "bench/analyze/csv.hpp"
#include "bench/harness/build_info.hpp"

#include <nlohmann/json.hpp>

namespace shardmark::bench::analyze {
namespace {

using Json = nlohmann::ordered_json;

/// Numbers keep their digits: 1222847.000 reads back as the same microseconds.
Json value_of(const Cell& cell) {
  return cell.is_literal ? Json::parse(cell.text) : Json(cell.text);
}

Json rows_of(const Table& table) {
  Json rows = Json::array();
  for (const std::vector<Cell>& row : table.rows) {
    Json object = Json::object();
    for (std::size_t i = 0; i < row.size(); ++i)
      if (!row[i].text.empty()) object[table.columns[i].name] = value_of(row[i]);
    rows.push_back(std::move(object));
  }
  return rows;
}

Json change_of(const Change& change) {
  return {{"a_us", static_cast<double>(change.a_ns) / 1e3},
          {"b_us", static_cast<double>(change.b_ns) / 1e3},
          {"change_us", static_cast<double>(change.delta_ns()) / 1e3}};
}

Json clocks_of(const Report& report) {
  Json clocks = Json::array();
  if (!report.across) return clocks;
  const ClockAlignment& alignment = report.across->clocks;
  for (std::size_t i = 0; i < report.ranks.size(); ++i) {
    Json clock{{"rank", report.ranks[i].rank},
               {"offset_us", static_cast<double>(alignment.offset_ns[i]) / 1e3},
               {"last_arrivals", report.across->ranks[i].num_last}};
    if (alignment.knows(i)) clock["bound_us"] = static_cast<double>(alignment.bound_ns[i]) / 1e3;
    clocks.push_back(std::move(clock));
  }
  return clocks;
}

}  // namespace

Json head_json(const Report& report) {
  Json ranks = Json::array();
  for (const RankReport& rank : report.ranks)
    ranks.push_back({{"rank", rank.rank},
                     {"file", rank.file},
                     {"format", rank.format},
                     {"device", rank.device_name},
                     {"num_events_read", rank.num_events_read},
                     {"has_device_work", rank.total.has_value()}});
  Json head{{"program", "shardmark-analyze"},
            {"version", build_info().version},
            {"schema_version", schema_version},
            {"inputs", report.options.inputs},
            {"comm_rule", name_of(report.options.rule)},
            {"comm_patterns", report.options.comm_patterns},
            {"window", report.window},
            {"world_size", report.world_size},
            {"missing_ranks", report.missing_ranks},
            {"ranks", std::move(ranks)},
            {"clocks", clocks_of(report)},
            {"suspicious_kernels", report.suspicious_kernels},
            {"warnings", report.warnings},
            {"errors", report.errors},
            {"verdict", report.verdict.name},
            {"verdict_reason", report.verdict.reason}};
  if (report.compared.ratio() > 0) head["imbalance"] = report.compared.ratio();
  if (report.mfu) {
    const Mfu& mfu = *report.mfu;
    head["mfu"] = {{"flops_model_causal", mfu.flops_causal},
                   {"flops_model_full", mfu.flops_full},
                   {"step_us", mfu.step_us},
                   {"num_steps", mfu.num_steps},
                   {"num_devices", mfu.num_devices},
                   {"tokens_per_s", mfu.tokens_per_s},
                   {"tflops_per_device", mfu.tflops_per_device},
                   {"mfu_causal_pct", mfu.mfu_causal_pct},
                   {"mfu_full_pct", mfu.mfu_full_pct},
                   {"peak_tflops", mfu.peak_tflops},
                   {"peak_source", mfu.peak_source},
                   {"note", mfu.note}};
  }
  return head;
}

std::string json_text(const Report& report) {
  Json json = head_json(report);
  for (const Table& table : tables_of(report)) json[table.name] = rows_of(table);
  return to_text(json);
}

std::string diff_json_text(const Options& options, const RunDiff& diff) {
  Json json{{"program", "shardmark-analyze"},   {"version", build_info().version},
            {"schema_version", schema_version}, {"a", options.inputs.at(0)},
            {"b", options.inputs.at(1)},        {"conclusion", diff.conclusion},
            {"warnings", diff.warnings},        {"categories", Json::array()},
            {"collectives", Json::array()},     {"kernels", Json::array()}};
  for (const CategoryChange& change : diff.categories) {
    Json row = change_of(change.time);
    row["rank"] = change.rank < 0 ? Json("mean") : Json(change.rank);
    row["category"] = change.category;
    json["categories"].push_back(std::move(row));
  }
  for (const CollectiveChange& change : diff.collectives) {
    Json row = change_of(change.total);
    row["kind"] = change.kind;
    row["group"] = change.group;
    if (change.bytes >= 0) row["bytes"] = change.bytes;
    row["a_count"] = change.a_count;
    row["b_count"] = change.b_count;
    row["wait"] = change_of(change.wait);
    json["collectives"].push_back(std::move(row));
  }
  for (const KernelChange& change : diff.kernels) {
    Json row = change_of(change.total);
    row["kernel"] = change.name;
    row["a_count"] = change.a_count;
    row["b_count"] = change.b_count;
    json["kernels"].push_back(std::move(row));
  }
  return to_text(json);
}

std::string to_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace shardmark::bench::analyze
