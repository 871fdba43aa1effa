#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace shardmark {

/// A thread that moves a rank's communication along while the rank's own thread computes. Both
/// use the same state, in turns: only this thread between the begin and the end of `beside`, only
/// the rank's thread otherwise. In between it sleeps.
class ProgressThread {
 public:
  /// `look` moves along what can be moved, does not block, and is false once nothing is in flight.
  explicit ProgressThread(std::function<bool()> look);
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;
  ~ProgressThread();

  /// Runs `work` here and looks again and again on the thread meanwhile. Throws what `work` throws,
  /// otherwise what a look threw, which also ends the looking.
  template <class Work>
  auto beside(const Work& work) {
    const auto result = [&] {
      const Turn turn{*this};
      return work();
    }();
    if (error_ != nullptr) std::rethrow_exception(error_);
    return result;
  }

 private:
  /// Its end waits for the end of the look under way.
  class Turn {
   public:
    explicit Turn(ProgressThread& thread) : thread_{thread} { thread_.begin(); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() { thread_.end(); }

   private:
    ProgressThread& thread_;
  };

  void begin();
  void end();
  void loop();

  std::function<bool()> look_;
  std::mutex mutex_;  ///< held during each look
  std::condition_variable wake_;
  /// Cleared without the mutex, so that the thread, which takes it again and again, lets go of it.
  std::atomic<bool> looking_{false};
  bool stop_{false};
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace shardmark
