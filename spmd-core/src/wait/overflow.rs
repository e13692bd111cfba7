//! What a virtual rank that overflows its stack is told, instead of a bare SIGSEGV.
//!
//! The handler is asked about every SIGSEGV of the process. A coroutine never leaves its thread,
//! so the thread that overflowed knows whose stack it was; no registry of stacks is needed. All
//! other faults go to the handler that was there before, which in a Rust program is that of the
//! standard library.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::OnceLock;
use std::{io, mem, ptr};

use super::name::Name;
use super::stack::PooledStack;

/// Whose stack overflowed, and its size in bytes.
pub(super) struct Overflow {
    pub(super) who: Name,
    pub(super) stack_size: usize,
}

struct Handler {
    previous: libc::sigaction,
    recognise: fn(usize) -> Option<Overflow>,
}

static HANDLER: OnceLock<Handler> = OnceLock::new();

/// Installs the handler, once per process. `recognise` is called in it with the address of a
/// fault; it must be async-signal-safe.
pub(super) fn install(recognise: fn(usize) -> Option<Overflow>) -> io::Result<()> {
    if HANDLER.get().is_some() {
        return Ok(());
    }
    // SAFETY: all bytes zero is a valid `sigaction`: the default action, no flags, no signals.
    let mut previous: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: a null action changes nothing; `previous` is valid for writes.
    if unsafe { libc::sigaction(libc::SIGSEGV, ptr::null(), &mut previous) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // The handler finds what it needs there before it can be called; and a thread that loses this
    // race leaves the installation to the one that won.
    if HANDLER.set(Handler { previous, recognise }).is_err() {
        return Ok(());
    }
    // SAFETY: as above, zero is valid.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = on_fault as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: `action` is a full action whose handler has the signature that SA_SIGINFO asks for
    // and calls only async-signal-safe functions; no old action is asked for.
    match unsafe { libc::sigaction(libc::SIGSEGV, &action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(handler) = HANDLER.get() else { return };
    // SAFETY: the kernel passes a valid `siginfo_t` to a SA_SIGINFO handler; a SIGSEGV with a
    // positive code was raised by a memory access, and then the address is set.
    let address = unsafe { ((*info).si_code > 0).then(|| (*info).si_addr() as usize) };
    if let Some(overflow) = address.and_then(handler.recognise) {
        report(overflow);
        // SAFETY: `abort` is async-signal-safe and has no requirements.
        unsafe { libc::abort() };
    }
    let previous = &handler.previous;
    match previous.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // The faulting instruction runs again when this returns, and ends the process in the
            // default way.
            // SAFETY: `previous` is an action that the kernel gave out, so it is valid.
            unsafe { libc::sigaction(signal, previous, ptr::null_mut()) };
        }
        function if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: whoever installed this address with SA_SIGINFO promised this signature.
            let function: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                unsafe { mem::transmute(function) };
            function(signal, info, context);
        }
        function => {
            // SAFETY: whoever installed this address without SA_SIGINFO promised this signature.
            let function: extern "C" fn(c_int) = unsafe { mem::transmute(function) };
            function(signal);
        }
    }
}

/// Writes the message with `write(2)` alone: formatting may allocate, which a handler must not.
fn report(overflow: Overflow) {
    let mut message = [0; 256];
    let mut len = 0;
    let mut append = |bytes: &[u8]| {
        message[len..len + bytes.len()].copy_from_slice(bytes);
        len += bytes.len();
    };
    match overflow.who {
        Name::Rank(rank) => {
            append(b"virtual rank ");
            append(Decimal::of(rank).digits());
        }
        Name::Task => append(b"a task"),
    }
    append(b" overflowed its stack of ");
    append(Decimal::of(overflow.stack_size).digits());
    append(b" bytes; enlarge it with Spmd::new(n).stack_size(bytes) or SPMD_STACK_SIZE=bytes\n");
    // SAFETY: the first `len` bytes of `message` are initialised and readable; `write` is
    // async-signal-safe. When stderr is closed there is nobody to tell.
    unsafe { libc::write(libc::STDERR_FILENO, message.as_ptr().cast(), len) };
}

/// A number as text, made without allocating.
struct Decimal {
    text: [u8; 20],
    start: usize,
}

impl Decimal {
    fn of(mut number: usize) -> Decimal {
        let mut decimal = Decimal { text: [b'0'; 20], start: 20 };
        loop {
            decimal.start -= 1;
            decimal.text[decimal.start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return decimal;
            }
        }
    }

    fn digits(&self) -> &[u8] {
        &self.text[self.start..]
    }
}

/// The stack on which this thread's signal handlers run, until it is dropped: a handler cannot
/// run on the stack that has just overflowed.
pub(super) struct SignalStack {
    previous: libc::stack_t,
    _memory: PooledStack,
}

impl SignalStack {
    pub(super) fn enter(memory: PooledStack) -> SignalStack {
        let Range { start, end } = memory.memory();
        let stack =
            libc::stack_t { ss_sp: start as *mut c_void, ss_flags: 0, ss_size: end - start };
        // SAFETY: all bytes zero is a valid `stack_t`.
        let mut previous: libc::stack_t = unsafe { mem::zeroed() };
        // SAFETY: the memory is writable and owned by the value returned, which cannot leave this
        // thread (`stack_t` is not `Send`) and restores the previous stack before it lets go of
        // the memory; `previous` is valid for writes. The call fails only where a handler runs on
        // the signal stack just now or the new one is too small, and neither is so here.
        unsafe { libc::sigaltstack(&stack, &mut previous) };
        SignalStack { previous, _memory: memory }
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        // SAFETY: `previous` is what the kernel said was this thread's signal stack; it belongs
        // to the thread, which is still running.
        unsafe { libc::sigaltstack(&self.previous, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals() {
        for number in [0, 7, 10, 1048576, usize::MAX] {
            assert_eq!(Decimal::of(number).digits(), number.to_string().as_bytes());
        }
    }
}
