#include "core/cpu/progress_thread.hpp"

#include <utility>

namespace shardmark {

ProgressThread::ProgressThread(std::function<bool()> look)
    : look_{std::move(look)}, thread_{[this] { loop(); }} {}

ProgressThread::~ProgressThread() {
  {
    const std::lock_guard lock{mutex_};
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void ProgressThread::begin() {
  {
    const std::lock_guard lock{mutex_};
    error_ = nullptr;
    looking_ = true;
  }
  wake_.notify_one();
}

void ProgressThread::end() {
  looking_ = false;
  const std::lock_guard lock{mutex_};
}

void ProgressThread::loop() {
  std::unique_lock lock{mutex_};
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || looking_; });
    if (stop_) return;
    try {
      if (!look_()) looking_ = false;
    } catch (...) {
      error_ = std::current_exception();
      looking_ = false;
    }
    lock.unlock();
    // Where cores are short, the computing thread is the one that should have it.
    std::this_thread::yield();
    lock.lock();
  }
}

}  // namespace shardmark
