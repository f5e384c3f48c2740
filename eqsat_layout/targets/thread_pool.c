/* Threads for the parallel loops of kernels, and memory for what they keep meanwhile, in place of TVM's.

   TVM's pool gives each thread its share of a loop and waits for all of them, so that on a busy machine each kernel takes
   until the system has let each thread run. Here every thread takes pieces of its own share first and of others' then:
   who calls does all that nobody else has begun, and waits only for pieces that are being worked at. No thread is bound
   to a core.

   Where there is no memory, TVM's C++ throws through kernels and this file, which are C: a thread of a pool ends the
   process then. Here the kernel is told, and gives an error as its result. It returns at once then, without giving back
   what it got before: that is done here. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST 256   /* threads */
#define PIECES 32  /* of a share; a loop of fewer iterations is cut into single ones */
#define SPINS 4000 /* looks for a next loop, some 50 us, before a thread sleeps */
#define WAITS 200  /* looks for the end of others' pieces between two yields */
#define KEPT 16    /* blocks of memory that a thread keeps for its next kernel */
#define HEAD 64    /* bytes before a block, which hold what is known of it: tensors lie at multiples of it */

typedef struct {
  void* sync_handle;
  int32_t num_task;
} Environment;                                           /* TVMParallelGroupEnv */
typedef int (*Lambda)(int task, Environment*, void* data); /* FTVMParallelLambda */

typedef struct {
  _Alignas(64) atomic_int next;
  int end;
} Share;

int TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message);

static Share shares[MOST];
static atomic_int threads = 1;
static int started;
static int taking; /* of the threads, in the present loop */
static Lambda lambda;
static void* closure;
static Environment environment;
static atomic_uint epoch; /* odd: a loop is being worked at */
static atomic_int inside, failed, sleepers;
static pthread_mutex_t launching = PTHREAD_MUTEX_INITIALIZER, sleeping = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t woken = PTHREAD_COND_INITIALIZER;
static _Thread_local int is_working;

typedef struct {
  int32_t most;   /* threads that the loops of this thread take; 0: all */
  uint32_t loops; /* that it began */
} Caller;
static _Thread_local Caller caller;

/* How floats are rounded, and whether tiny ones are 0: for pieces as for the thread that begins the loop. */
#if defined(__x86_64__)
static unsigned control;
static inline void remember_control(void) { control = __builtin_ia32_stmxcsr(); }
static inline void take_control(void) { __builtin_ia32_ldmxcsr(control); }
static inline unsigned own_control(void) { return __builtin_ia32_stmxcsr(); }
static inline void set_control(unsigned own) { __builtin_ia32_ldmxcsr(own); }
#else
static inline void remember_control(void) {}
static inline void take_control(void) {}
static inline unsigned own_control(void) { return 0; }
static inline void set_control(unsigned own) { (void)own; }
#endif

/* ---- memory ---- */

typedef struct Block {
  size_t size;
  struct Block* next; /* of those held */
  uintptr_t frame;    /* where the stack ends in the function that asked for it */
} Block;

/* Stacks grow downwards, and a function calls from one place of its own: what it has called lies below. */
#define FRAME ((uintptr_t)__builtin_dwarf_cfa())

static pthread_key_t of_thread;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local Block *kept[KEPT], *held; /* held: the latest first */
static _Thread_local int is_refused, is_known;
static _Thread_local unsigned control_before; /* of a thread that was refused memory: kernels put it back before they ask */
static atomic_int refused;
static atomic_uint refused_control; /* of any thread of a loop */

static void forget_blocks(void* unused) {
  (void)unused;
  for (int i = 0; i < KEPT; ++i) {
    free(kept[i]);
    kept[i] = 0;
  }
}

static void make_key(void) { pthread_key_create(&of_thread, forget_blocks); }

/* What a function that fails, and whatever it called, still hold. A function that called it, through Python for one, may
   go on. */
static void release_below(uintptr_t frame) {
  for (Block** at = &held; *at;) {
    Block* block = *at;
    if (block->frame > frame) {
      at = &block->next;
      continue;
    }
    *at = block->next;
    free(block);
  }
}

/* What a piece of a loop that failed still holds; ``before``: the latest that was held when it began. */
static void release_since(const Block* before) {
  while (held != before) {
    Block* block = held;
    held = block->next;
    free(block);
  }
}

static inline void* hold(Block* block, uintptr_t frame) {
  block->frame = frame;
  block->next = held;
  held = block;
  return (char*)block + HEAD;
}

/* As TVMBackendAllocWorkspace, but nothing is thrown. The smallest kept block that is large enough; if none is, the
   largest one gives way to a larger one, so that there are no more than a thread ever held at once, and they stay in
   its cache. */
__attribute__((visibility("default"))) void* eqsat_layout_allocate(int type, int number, uint64_t size, int code, int bits) {
  int best = -1, largest = -1;
  (void)type, (void)number, (void)code, (void)bits;
  for (int i = 0; i < KEPT; ++i) {
    if (!kept[i]) continue;
    if (largest < 0 || kept[i]->size > kept[largest]->size) largest = i;
    if (kept[i]->size >= size && (best < 0 || kept[i]->size < kept[best]->size)) best = i;
  }
  if (best < 0 && largest >= 0) {
    free(kept[largest]);
    kept[largest] = 0;
  }
  if (best >= 0) {
    Block* found = kept[best];
    kept[best] = 0;
    return hold(found, FRAME);
  }
  for (int i = 0; i < 2 && size < UINT64_MAX / 2; ++i) {
    size_t whole = (size + 4095) & ~(size_t)4095;
    void* made;
    if (!posix_memalign(&made, HEAD, whole + HEAD)) {
      ((Block*)made)->size = whole;
      return hold(made, FRAME);
    }
    forget_blocks(0);
  }
  release_below(FRAME);
  char text[80];
  snprintf(text, sizeof text, "out of memory: a kernel asked for %llu bytes", (unsigned long long)size);
  TVMFFIErrorSetRaisedFromCStr("MemoryError", text);
  is_refused = 1;
  control_before = own_control();
  return 0;
}

/* As TVMBackendFreeWorkspace. */
__attribute__((visibility("default"))) int eqsat_layout_free(int type, int number, void* given) {
  (void)type, (void)number;
  if (!is_known) {
    pthread_once(&once, make_key);
    is_known = !pthread_setspecific(of_thread, &is_known);
  }
  Block *block = (Block*)((char*)given - HEAD), **at = &held;
  while (*at && *at != block) at = &(*at)->next;
  if (*at) *at = block->next;
  for (int i = 0; i < KEPT; ++i)
    if (!kept[i]) {
      kept[i] = block;
      return 0;
    }
  free(block);
  return 0;
}

/* ---- threads ---- */

static inline void pause_briefly(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Whether a piece failed. */
static int work(int own) {
  int result = 0;
  const Block* before = held;
  is_working = 1;
  for (int i = 0; i < taking; ++i) {
    Share* share = &shares[(own + i) % taking];
    for (int task; (task = atomic_fetch_add_explicit(&share->next, 1, memory_order_relaxed)) < share->end;)
      if (lambda(task, &environment, closure)) {
        release_since(before);
        result = -1;
      }
  }
  is_working = 0;
  return result;
}

static unsigned next_loop(unsigned seen) {
  unsigned now;
  for (int i = 0; i < SPINS; ++i) {
    if ((now = atomic_load(&epoch)) != seen && now & 1) return now;
    pause_briefly();
  }
  pthread_mutex_lock(&sleeping);
  atomic_fetch_add(&sleepers, 1); /* before the look: who begins a loop looks for sleepers after it */
  while ((now = atomic_load(&epoch)) == seen || !(now & 1)) pthread_cond_wait(&woken, &sleeping);
  atomic_fetch_sub(&sleepers, 1);
  pthread_mutex_unlock(&sleeping);
  return now;
}

static void* run(void* own) {
  for (unsigned seen = 0;;) {
    seen = next_loop(seen);
    atomic_fetch_add(&inside, 1); /* before the look: who ends a loop waits for those inside after it */
    if (atomic_load(&epoch) == seen && (int)(intptr_t)own < taking) {
      take_control();
      is_refused = 0;
      if (work((int)(intptr_t)own)) {
        if (is_refused) {
          atomic_store(&refused_control, control_before);
          atomic_store(&refused, 1);
        }
        atomic_store(&failed, 1);
      }
    }
    atomic_fetch_sub(&inside, 1);
  }
  return 0;
}

static void forget_threads(void) { /* a fork has none of them */
  pthread_mutex_init(&launching, 0);
  pthread_mutex_init(&sleeping, 0);
  pthread_cond_init(&woken, 0);
  started = 0;
  atomic_store(&epoch, 0);
  atomic_store(&inside, 0);
  atomic_store(&sleepers, 0);
}

static void start(void) {
  if (!started) pthread_atfork(0, 0, forget_threads);
  for (started = started ? started : 1; started < threads; ++started) {
    pthread_t thread;
    if (pthread_create(&thread, 0, run, (void*)(intptr_t)started)) break; /* their shares are taken by the others */
    pthread_detach(thread);
  }
}

static int run_alone(Lambda own, void* data, int tasks) {
  Environment alone = {0, tasks > 0 ? tasks : 1};
  int result = 0;
  const Block* before = held;
  for (int task = 0; task < alone.num_task; ++task)
    if (own(task, &alone, data)) {
      release_since(before);
      result = -1;
    }
  if (result && is_refused) set_control(control_before); /* later pieces changed it again */
  return result;
}

static int run_by_all(Lambda own, void* data, int tasks, int most) {
  start();
  taking = most < threads ? most : threads; /* which may have changed */
  lambda = own;
  closure = data;
  remember_control();
  environment.num_task = tasks > 0 ? tasks : taking * PIECES;
  for (int i = 0; i < taking; ++i) {
    atomic_store_explicit(&shares[i].next, (int)((int64_t)environment.num_task * i / taking), memory_order_relaxed);
    shares[i].end = (int)((int64_t)environment.num_task * (i + 1) / taking);
  }
  atomic_store(&failed, 0);
  atomic_store(&refused, 0);
  atomic_fetch_add(&epoch, 1);
  if (atomic_load(&sleepers)) {
    pthread_mutex_lock(&sleeping);
    pthread_cond_broadcast(&woken);
    pthread_mutex_unlock(&sleeping);
  }
  int result = work(0);
  atomic_fetch_add(&epoch, 1);
  for (int i = 1; atomic_load(&inside); ++i) {
    pause_briefly();
    if (i % WAITS == 0) sched_yield();
  }
  if (!result && atomic_load(&failed)) { /* what is raised in another thread stays there */
    if (atomic_load(&refused))
      TVMFFIErrorSetRaisedFromCStr("MemoryError", "out of memory: a piece of a parallel loop was refused what it asked for");
    else
      TVMFFIErrorSetRaisedFromCStr("RuntimeError", "a piece of a parallel loop failed in another thread");
    result = -1;
  }
  if (result && is_refused)
    set_control(control_before);
  else if (result && atomic_load(&refused))
    set_control(atomic_load(&refused_control));
  pthread_mutex_unlock(&launching);
  return result;
}

/* As TVMBackendParallelLaunch. A loop in a loop, and one beside another thread's, is run by its caller alone. Who calls
   returns at once if it fails. */
__attribute__((visibility("default"))) int eqsat_layout_launch(Lambda own, void* data, int tasks) {
  int was_refused = is_refused; /* a piece before this one, of a loop around this one */
  unsigned control_of_it = control_before;
  is_refused = 0;
  int most = caller.most > 0 && caller.most < threads ? caller.most : threads;
  ++caller.loops;
  int alone = most < 2 || is_working || pthread_mutex_trylock(&launching);
  int result = alone ? run_alone(own, data, tasks) : run_by_all(own, data, tasks, most);
  if (result) release_below(FRAME);
  if (was_refused) {
    is_refused = 1;
    control_before = control_of_it;
  }
  return result;
}

__attribute__((visibility("default"))) void eqsat_layout_set_threads(int count) {
  pthread_mutex_lock(&launching);
  threads = count < 1 ? 1 : count > MOST ? MOST : count;
  pthread_mutex_unlock(&launching);
}

/* Of the thread that asks, for as long as it lives. */
__attribute__((visibility("default"))) Caller* eqsat_layout_caller(void) { return &caller; }
