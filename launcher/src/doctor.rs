//! `--doctor`: what this machine offers to a job, and what is missing for the rest; and what a job
//! of the programs that are named would be.

mod finding;
mod gpu;
mod mpi;

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::error::Error;
use crate::plan;
use crate::topology;
use finding::{Finding, State, broken, good, limited};

/// Prints the findings; the exit status is 1 where process ranks, or these programs, cannot run.
pub(crate) fn examine(names: &[OsString]) -> Result<u8, Error> {
    let programs: Vec<_> = names.iter().map(|name| plan::find(name)).collect();
    let machine = [cores(), quota(), numa(), shared_memory(), reach(), open_files()];
    let mut findings = Vec::from(machine);
    findings.extend(mpi::findings(&programs));
    findings.extend(gpu::findings());
    let mut text = String::new();
    for finding in &findings {
        let mark = match finding.state {
            State::Good => "ok",
            State::Limited => "--",
            State::Broken => "NO",
        };
        text += &format!("{mark}  {:18} {}\n", finding.what, finding.found);
    }
    crate::report::print(&text)?;
    Ok(u8::from(findings.iter().any(|finding| finding.state == State::Broken)))
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn cores() -> Finding {
    let allowed = topology::allowed();
    let cores = topology::cores(&allowed).len();
    good("cores", format!("{cores}, with {} CPUs allowed: {allowed}", allowed.len()))
}

fn quota() -> Finding {
    let (threads, allowed) = (topology::parallelism(), topology::allowed().len());
    match threads < allowed {
        true => limited(
            "CPU quota",
            format!(
                "the control group gives {threads} of {allowed} CPUs; more ranks than {threads} \
                 will take turns"
            ),
        ),
        false => good("CPU quota", "none below the allowed CPUs".into()),
    }
}

fn numa() -> Finding {
    let nodes = topology::nodes(&topology::allowed());
    let sets: Vec<String> = nodes.iter().map(|node| format!("[{node}]")).collect();
    let source = if cfg!(feature = "hwloc") { "hwloc" } else { "/sys" };
    good("NUMA nodes", format!("{}: CPUs {} (by {source})", nodes.len(), sets.join(" ")))
}

#[cfg(target_os = "linux")]
fn shared_memory() -> Finding {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    let attempt = || {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("spmdrun-doctor", flags)?;
        ftruncate(&file, 1 << 40)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)
    };
    match attempt() {
        Ok(()) => good("shared memory", "a sealed memfd of 1 TiB can be made".into()),
        Err(error) => broken(
            "shared memory",
            format!(
                "no sealed memfd of 1 TiB ({error}); use --as threads, or lift the limit that \
                 forbids it (ulimit -f, a seccomp filter)"
            ),
        ),
    }
}

#[cfg(not(target_os = "linux"))]
fn shared_memory() -> Finding {
    broken("shared memory", "process ranks need Linux; use --as threads or --as virtual".into())
}

/// Whether a rank may copy straight out of another's memory.
#[cfg(target_os = "linux")]
fn reach() -> Finding {
    let what = "process_vm_readv";
    let source = [7u8; 8];
    let mut copy = [0u8; 8];
    let from = libc::iovec { iov_base: source.as_ptr().cast_mut().cast(), iov_len: source.len() };
    let to = libc::iovec { iov_base: copy.as_mut_ptr().cast(), iov_len: copy.len() };
    let own = std::process::id() as libc::pid_t;
    // SAFETY: both vectors have one entry, as the counts say. `to` covers `copy`, which is borrowed
    // mutably and used by nothing else during the call; `from` covers `source`, alive and only
    // read. The kernel checks the process id and every address.
    let copied = unsafe { libc::process_vm_readv(own, &to, 1, &from, 1, 0) };
    if copied != source.len() as isize || copy != source {
        let error = std::io::Error::last_os_error();
        return limited(
            what,
            format!("refused ({error}), by a seccomp filter; large messages are copied twice"),
        );
    }
    match read("/proc/sys/kernel/yama/ptrace_scope").as_deref() {
        None | Some("0") => good(what, "permitted between processes of one user".into()),
        Some("1") => good(what, "permitted to ranks by the launcher's leave (Yama scope 1)".into()),
        Some(scope) => limited(
            what,
            format!(
                "forbidden by Yama (ptrace_scope {scope}); large messages are copied twice; \
                 `sysctl kernel.yama.ptrace_scope=1` permits it"
            ),
        ),
    }
}

#[cfg(not(target_os = "linux"))]
fn reach() -> Finding {
    limited("process_vm_readv", "only on Linux".into())
}

#[cfg(unix)]
fn open_files() -> Finding {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    match limit.maximum {
        Some(most) if most < 4096 => limited(
            "open files",
            format!("at most {most}, enough for {} process ranks (ulimit -Hn)", most / 3),
        ),
        Some(most) => good("open files", format!("at most {most}")),
        None => good("open files", "no limit".into()),
    }
}

#[cfg(not(unix))]
fn open_files() -> Finding {
    good("open files", "not examined here".into())
}
