#pragma once

namespace shardmark {

/// A second process between the launcher and a rank, for two things that a rank cannot do itself.
/// A rank that ends with code 0 before its work is done must not look successful: mpirun may then
/// return 0 itself. And a rank killed by a signal must not look like it to the launcher: MPICH's
/// mpirun kills the survivors at once, even with -disable-auto-cleanup, so that nobody can say who
/// is gone.
///
/// The constructor forks. The child returns from it and is the rank; the parent, the keeper, only
/// waits for the child, passes SIGINT and SIGTERM on to it (see InterruptFlag; those that come
/// within 100 ms count as one), and ends with its exit code: 1 instead of 0 unless `completed` was
/// called, 128 + the signal if one killed it. Create it before any thread; the child dies with the
/// keeper.
class Keeper {
 public:
  Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;
  ~Keeper();

  /// Exit code 0 means success from now on.
  void completed();

 private:
  int marker_;  ///< write end of the pipe to the keeper
};

}  // namespace shardmark
