#pragma once

/// Put before a kernel: the loader picks the best of three versions. Sanitizers start up after the
/// loader has called the resolvers, and clang 14 has no such attribute for these names. What the
/// kernel calls must be inlined to be compiled for the same instruction set.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SHARDMARK_CLONES \
  __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define SHARDMARK_CLONES
#endif
