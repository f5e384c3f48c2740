#include "fibers.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#if !defined(__x86_64__) && !defined(__aarch64__)
#define SIM_UCONTEXT  // slower: each turn is a system call
#endif
#ifdef SIM_UCONTEXT
#include <ucontext.h>
#endif

namespace sim {
namespace {

constexpr size_t GUARD = 4 << 10;

#if defined(SIM_UCONTEXT)
#elif defined(__x86_64__)
// Saves what a called function must keep, swaps stacks, takes it back. The floating-point modes never change.
asm(R"(
.text
.hidden sim_swap
.type sim_swap, @function
sim_swap:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size sim_swap, .-sim_swap
)");
constexpr int SAVED = 6;  // words below the address to which it returns
#elif defined(__aarch64__)
asm(R"(
.text
.hidden sim_swap
.type sim_swap, %function
sim_swap:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size sim_swap, .-sim_swap
)");
#endif

}  // namespace

extern "C" void sim_swap(void** from, void* to);

struct Fiber {
  char* stack;  // its lowest byte that may be used
  void* top;
  void (*function)();
  bool ended;
#ifdef SIM_UCONTEXT
  ucontext_t context;
#endif
};

uintptr_t stack;

namespace {

std::vector<Fiber*> idle;
Fiber* running;
void* scheduler;
#ifdef SIM_UCONTEXT
ucontext_t scheduler_context;
#endif

void start() {
  running->function();
  running->ended = true;
  pause();
  abort();  // nobody resumes a fiber that has ended
}

void prepare(Fiber* fiber) {
  uintptr_t end = reinterpret_cast<uintptr_t>(fiber->stack) + STACK;
#if defined(SIM_UCONTEXT)
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack;
  fiber->context.uc_stack.ss_size = STACK;
  makecontext(&fiber->context, start, 0);
  (void)end;
#elif defined(__x86_64__)
  auto* top = reinterpret_cast<void**>(end) - 2;  // as after a call: the stack is 8 bytes off 16
  *top = reinterpret_cast<void*>(start);
  fiber->top = top - SAVED;
#else
  auto* top = reinterpret_cast<void**>(end - 160);
  top[11] = reinterpret_cast<void*>(start);  // x30
  fiber->top = top;
#endif
}

}  // namespace

Fiber* fiber_for(void (*function)()) {
  Fiber* fiber;
  if (idle.empty()) {
    auto* pages = static_cast<char*>(
        mmap(nullptr, GUARD + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (pages == MAP_FAILED) abort();
    mprotect(pages, GUARD, PROT_NONE);
    fiber = new Fiber();
    fiber->stack = pages + GUARD;
  } else {
    fiber = idle.back();
    idle.pop_back();
  }
  fiber->function = function;
  fiber->ended = false;
  prepare(fiber);
  return fiber;
}

void give_back(Fiber* fiber) { idle.push_back(fiber); }

void unmap_idle() {
  for (Fiber* fiber : idle) {
    munmap(fiber->stack - GUARD, GUARD + STACK);
    delete fiber;
  }
  idle.clear();
}

void stop() {
  running = nullptr;
  stack = 0;
}

void resume(Fiber* fiber) {
  running = fiber;
  stack = reinterpret_cast<uintptr_t>(fiber->stack);
#ifdef SIM_UCONTEXT
  swapcontext(&scheduler_context, &fiber->context);
#else
  sim_swap(&scheduler, fiber->top);
#endif
  stop();
}

void pause() {
#ifdef SIM_UCONTEXT
  swapcontext(&running->context, &scheduler_context);
#else
  sim_swap(&running->top, scheduler);
#endif
}

bool has_ended(Fiber* fiber) { return fiber->ended; }

}  // namespace sim
