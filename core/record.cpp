#include "core/record.hpp"

#include "core/error.hpp"

namespace shardmark {
namespace {

std::string describe(const Tensor& tensor) {
  return message(tensor.buffer, '+', tensor.offset, ':', tensor.shape.to_string(),
                 tensor.contiguous() ? "" : message('/', tensor.row_stride));
}

}  // namespace

std::string to_string(const OpRecord& record) {
  const Touches touched = touches(record.op);
  std::string text = message(record.seq, ' ', name_of(record.lane), ' ',
                             record.path->empty() ? "-" : *record.path, ' ', name_of(record.op));
  const auto& typed = touched.reads.empty() ? touched.writes : touched.reads;
  if (!typed.empty()) text += message(' ', name_of(typed.front().dtype));
  for (const Tensor& tensor : touched.reads) text += ' ' + describe(tensor);
  if (!touched.writes.empty()) text += " ->";
  for (const Tensor& tensor : touched.writes) text += ' ' + describe(tensor);
  if (const Group* group = group_of(record.op)) text += ' ' + group->to_string();
  if (const auto* signal = std::get_if<Signal>(&record.op))
    text += message(" fence", signal->fence.id);
  if (const auto* await = std::get_if<Await>(&record.op))
    text += message(" fence", await->fence.id);
  return text;
}

}  // namespace shardmark
