// Switches from one stack to another: a few instructions where they are known, else ucontext.
#include "fibers_on_cpu.h"

#if !defined(__x86_64__)
#include <ucontext.h>

#include <map>
#endif

namespace cpu {

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

}  // namespace cpu
