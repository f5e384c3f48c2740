#include "banks.h"

#include <algorithm>

namespace sim {
namespace {

constexpr int BANKS = 32, MOST = 1 << 12;

struct Asked {
  const void* place;
  unsigned turn;  // how often this lane has been at that place
  unsigned offset, size;
};

// Words that the lanes of one phase ask for: those of one bank are served one after another, a word once.
unsigned cycles(std::vector<unsigned>& words) {
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  unsigned per_bank[BANKS] = {}, most = 0;
  for (unsigned word : words) most = std::max(most, ++per_bank[word % BANKS]);
  return most;
}

// 32 lanes ask for up to 128 bytes a cycle: accesses of 8 bytes go by half warps, those of 16 by quarters.
void count(const Asked* begin, const Asked* end) {
  std::vector<unsigned> words;
  unsigned per_phase = 128 / std::max(4u, begin->size);
  for (const Asked* first = begin; first < end; first += per_phase) {
    words.clear();
    for (const Asked* one = first; one < std::min(end, first + per_phase); one++)
      for (unsigned at = one->offset / 4; at <= (one->offset + one->size - 1) / 4; at++) words.push_back(at);
    report.shared_wavefronts += cycles(words);
    report.shared_accesses++;
  }
}

}  // namespace

void count_touch(Thread& thread, size_t offset, size_t size) {
  if (thread.touches.size() < MOST)
    thread.touches.push_back({launch.place, static_cast<unsigned>(offset), static_cast<unsigned>(size)});
}

void count_conflicts() {
  std::vector<Asked> asked;
  std::vector<std::pair<const void*, unsigned>> turns;
  for (size_t first = 0; first < threads.size(); first += WARP) {
    asked.clear();
    for (size_t i = first; i < std::min(threads.size(), first + WARP); i++) {
      size_t begin = asked.size();
      for (const Touch& touch : threads[i].touches) asked.push_back({touch.place, 0, touch.offset, touch.size});
      std::stable_sort(asked.begin() + static_cast<long>(begin), asked.end(),
                       [](const Asked& a, const Asked& b) { return a.place < b.place; });
      for (size_t k = begin + 1; k < asked.size(); k++)
        if (asked[k].place == asked[k - 1].place) asked[k].turn = asked[k - 1].turn + 1;
      threads[i].touches.clear();
    }
    std::stable_sort(asked.begin(), asked.end(), [](const Asked& a, const Asked& b) {
      return a.place != b.place ? a.place < b.place : a.turn < b.turn;
    });
    for (size_t begin = 0, end; begin < asked.size(); begin = end) {
      end = begin;
      while (end < asked.size() && asked[end].place == asked[begin].place && asked[end].turn == asked[begin].turn)
        end++;
      count(asked.data() + begin, asked.data() + end);
    }
  }
}

}  // namespace sim
