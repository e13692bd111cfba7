//! Ordinary vectors under `SharedAlloc`: process ranks read them in place, and what has been freed
//! is not read any more.

#![cfg(target_os = "linux")]

mod support;

use std::os::unix::process::CommandExt;
use std::process::Command;

use spmd::prelude::*;

use support::processes;

#[global_allocator]
static ALLOCATOR: spmd::SharedAlloc = spmd::SharedAlloc;

/// Whether the values lie in the arena of this process's job.
fn is_shared<T>(values: &[T]) -> bool {
    let address = values.as_ptr().addr();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("of this process");
    maps.lines().filter(|line| line.contains("memfd:spmd")).any(|line| {
        let (start, end) =
            line.split_once(' ').and_then(|it| it.0.split_once('-')).expect("a range");
        let number = |text| usize::from_str_radix(text, 16).expect("an address");
        (number(start)..number(end)).contains(&address)
    })
}

#[test]
fn large_vectors_of_process_ranks_lie_in_the_arena() -> Result<()> {
    spmd(2, |_| {
        assert!(support::is_process_rank() || !is_shared(&vec![1u8; 1 << 20]));
        Ok(())
    })?;
    processes("large_vectors_of_process_ranks_lie_in_the_arena", 2, &[], |ctx| {
        let (large, small) = (vec![1u8; 1 << 20], vec![1u8; 1 << 10]);
        assert!(is_shared(&large) && !is_shared(&small));
        ctx.barrier()
    })?;
    Ok(())
}

#[test]
fn vectors_grow_shrink_and_move_with_what_they_hold() -> Result<()> {
    processes("vectors_grow_shrink_and_move_with_what_they_hold", 2, &[], |ctx| {
        let mut all: Vec<Vec<usize>> = (0..5).map(|_| Vec::new()).collect();
        for i in 0..200_000usize {
            all[i % 5].push(i);
        }
        all[1].truncate(3000);
        all[1].shrink_to_fit();
        all[2].truncate(10);
        all[2].shrink_to_fit();
        let moved = std::thread::spawn(move || all).join().expect("it only returns them");
        for (i, values) in moved.iter().enumerate() {
            assert!(values.iter().enumerate().all(|(at, value)| *value == 5 * at + i));
        }
        let zeros = vec![0u64; 100_000];
        drop(moved);
        let more = vec![0u64; 300_000];
        assert!(zeros.iter().chain(&more).all(|value| *value == 0));
        ctx.barrier()
    })?;
    Ok(())
}

#[test]
fn what_is_freed_after_a_call_is_not_read() -> Result<()> {
    processes("what_is_freed_after_a_call_is_not_read", 3, &[], |ctx| {
        let (me, n) = (ctx.rank(), ctx.size());
        for turn in 0..300 {
            let len = 4096 + 1000 * (turn % 17);
            let own = vec![(me + turn) as u64; len];
            let mut sum = vec![0u64; len];
            ctx.allreduce(&own, &mut sum, Sum)?;
            // The next owner of the memory writes it at once.
            drop(own);
            let garbage = vec![u64::MAX; len];
            let expected = (n * turn + n * (n - 1) / 2) as u64;
            assert!(sum.iter().all(|value| *value == expected), "turn {turn}");
            drop(garbage);
            let mut text = vec![if me == turn % n { turn as u32 } else { 0 }; 2 * len];
            ctx.broadcast(&mut text, turn % n)?;
            assert!(text.iter().all(|value| *value == turn as u32));
            text.fill(u32::MAX);
            drop(text);
            let letter = vec![(turn * n + me) as u32; len];
            let mut from_left = vec![0u32; len];
            let (right, left) = ((me + 1) % n, (me + n - 1) % n);
            ctx.sendrecv(&letter, right, 0, &mut from_left, left, 0)?;
            drop(letter);
            let garbage = vec![u32::MAX; len];
            assert!(from_left.iter().all(|value| *value == (turn * n + left) as u32));
            drop(garbage);
        }
        Ok(())
    })?;
    Ok(())
}

/// Used and untouched ranges in turn, more than the heap can note in a small allocation.
#[test]
fn a_large_vector_spans_many_small_ones_that_were_freed() -> Result<()> {
    processes("a_large_vector_spans_many_small_ones_that_were_freed", 1, &[], |_| {
        const EACH: usize = 16 << 10;
        let mut all: Vec<_> = (0..8600).map(|_| vec![1u8; EACH]).collect();
        // So many that the heap gives their pages back.
        all.iter_mut().step_by(2).for_each(|it| *it = Vec::new());
        all.iter_mut().skip(1).step_by(2).take(1500).for_each(|it| *it = Vec::new());
        let large = vec![0u8; 2900 * EACH];
        assert!(is_shared(&large) && large.iter().all(|byte| *byte == 0));
        Ok(())
    })?;
    Ok(())
}

/// A `Command` forks to change the group, or to run code of the program's; its child then reads
/// the arguments and the environment where its parent has them.
#[test]
fn commands_have_large_arguments() -> Result<()> {
    processes("commands_have_large_arguments", 2, &[], |ctx| {
        let argument = "x".repeat(100_000);
        for way in 0..3 {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", "echo ${#1} $(env | grep -c ^LARGE_)", "sh", &argument]);
            command.envs((0..4000).map(|index| (format!("LARGE_{index}"), "y")));
            match way {
                0 => {}
                // SAFETY: the number of this process's own group is read.
                1 => drop(command.gid(unsafe { libc::getgid() })),
                // SAFETY: nothing is done in the child.
                _ => drop(unsafe { command.pre_exec(|| Ok(())) }),
            }
            let output = command.output().map_err(Error::user)?;
            assert_eq!(String::from_utf8_lossy(&output.stdout), "100000 4000\n", "way {way}");
        }
        ctx.barrier()
    })?;
    Ok(())
}

#[test]
fn a_forked_child_has_its_own_copy() -> Result<()> {
    processes("a_forked_child_has_its_own_copy", 1, &[], |_| {
        let mut values = vec![5u8; 1 << 20];
        assert!(is_shared(&values));
        // SAFETY: the child touches memory, allocates by the system's allocator, which is prepared
        // for a fork, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let read = values[1000] == 5;
            values.fill(6);
            values.resize(2 << 20, 6);
            let status = u8::from(read && values.iter().all(|it| *it == 6) && !is_shared(&values));
            drop(values);
            // SAFETY: it runs nothing of this process's.
            unsafe { libc::_exit(status.into()) };
        }
        let mut status = 0;
        // SAFETY: the child is this process's own, and the place for the status is given.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 1 << 8, "as a value of wait");
        assert!(values.iter().all(|value| *value == 5));
        Ok(())
    })?;
    Ok(())
}
