// Stacks, switches from one to another (a few instructions where they are known, else ucontext),
// and faults.
#include <sys/mman.h>

#include "fibers_on_cpu.h"

#if !defined(__x86_64__)
#include <ucontext.h>

#include <map>
#endif

namespace cpu {

char* mapped(std::size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) fail("no memory");
  return static_cast<char*>(at);
}

#if defined(__x86_64__)
asm(R"(
.text
.globl cpu_switch
.hidden cpu_switch
.type cpu_switch, @function
cpu_switch:
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
)");
void prepare(Fiber& fiber, void (*enter)()) {
  // Stacks begin at different lines of the cache.
  auto* top = reinterpret_cast<void**>(fiber.stack + kStack - 64 - fiber.number % 61 * 192);
  *--top = nullptr;  // `enter` finds the stack as a call would leave it
  *--top = reinterpret_cast<void*>(enter);
  fiber.context = top - 6;
}
#else
void prepare(Fiber& fiber, void (*enter)()) {
  static std::map<Fiber*, ucontext_t> contexts;
  ucontext_t& context = contexts[&fiber];
  getcontext(&context);
  context.uc_stack.ss_sp = fiber.stack;
  context.uc_stack.ss_size = kStack;
  context.uc_link = nullptr;
  makecontext(&context, enter, 0);
  fiber.context = &context;
}
void cpu_switch(void** from, void* to) {
  static ucontext_t main;
  auto* own = static_cast<ucontext_t*>(*from ? *from : &main);
  *from = own;
  swapcontext(own, static_cast<ucontext_t*>(to));
}
#endif

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};

Faults::Faults() {
  struct sigaction action = {};
  action.sa_sigaction = [](int signal, siginfo_t* info, void*) {
    if (signal == SIGILL) fail("an index beyond an array");
    if (signal == SIGFPE) fail("an integer divided by zero");
    fail("touched memory that nobody has, at %p", info->si_addr);
  };
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  static char* const stack = mapped(kStack);
  stack_t own = {};
  own.ss_sp = stack;
  own.ss_size = kStack;
  sigaltstack(&own, &stack_before_);
  for (int i = 0; i < 4; ++i) sigaction(kSignals[i], &action, &before_[i]);
}
Faults::~Faults() {
  for (int i = 0; i < 4; ++i) sigaction(kSignals[i], &before_[i], nullptr);
  sigaltstack(&stack_before_, nullptr);
}

}  // namespace cpu
