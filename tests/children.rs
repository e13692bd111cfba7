//! Processes that a process rank starts.

#![cfg(target_os = "linux")]

use std::os::unix::process::CommandExt;
use std::process::Command;

use spmd::prelude::*;

mod support;

use support::{finish, processes};

/// Whether the process has the arena of its job mapped.
fn has_arena(process: &str) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps"));
    maps.expect("the process is there, and ours").contains("memfd:spmd")
}

/// A process that only waits until it is dropped.
struct Forked(libc::pid_t);

impl Forked {
    fn new() -> Forked {
        // SAFETY: what the child calls are system calls, which may follow a fork of a process with
        // threads; it never returns to code that expects them.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above; these take numbers.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                loop {
                    libc::pause();
                }
            }
        }
        assert!(child > 0, "{}", std::io::Error::last_os_error());
        Forked(child)
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        // SAFETY: the child is this process's own, and not waited for yet; without a place for the
        // status, none is written.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

#[test]
fn a_forked_child_has_no_arena() -> Result<()> {
    processes("a_forked_child_has_no_arena", 2, &[], |ctx| {
        let child = Forked::new();
        assert!(has_arena("self"));
        assert!(!has_arena(&child.0.to_string()));
        ctx.barrier()
    })
}

#[test]
fn a_rank_starts_programs() -> Result<()> {
    processes("a_rank_starts_programs", 2, &[], |ctx| {
        for forks in [false, true] {
            let mut program = Command::new("echo");
            if forks {
                // SAFETY: the closure does nothing. That there is one makes std fork.
                unsafe { program.pre_exec(|| Ok(())) };
            }
            let ran = finish(program.arg("done"));
            assert_eq!((ran.code, ran.out.as_str()), (Some(0), "done\n"), "{ran:?}");
            // The arena is as it was.
            assert_eq!(ctx.allreduce_value(ctx.rank(), Sum)?, 1);
        }
        Ok(())
    })
}
