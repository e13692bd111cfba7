//! How jobs over MPI fail: what is told, by whom, and to whom.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use spmd::prelude::*;
use spmd_core::boot::Alarm;

use crate::mistakes::{self, MISTAKES, is_last};
use crate::support::{Mpi, across_to_its_end, is_mpi_process};
use crate::{FLAT, Place, everywhere, full};

/// Each mistake ends the job with an error that names it, within some seconds, and leaves nothing.
fn mistakes_over(library: &str, test: &str, places: &[Place]) -> Result<()> {
    if !is_mpi_process() {
        return each_mistake_over(library, test, places);
    }
    mistakes::leave_other_threads();
    mistakes::end(each_mistake_over(library, test, places))
}

fn each_mistake_over(library: &str, test: &str, places: &[Place]) -> Result<()> {
    for mpi in Mpi::all().into_iter().filter(|mpi| mpi.name == library) {
        for &place in places {
            for (index, (name, mistake, words)) in MISTAKES.iter().enumerate() {
                // Each in one of two shapes, over another library in the other.
                let turn = usize::from((place == FLAT) == (library == "mpich"));
                if index % 2 != turn && !full() {
                    continue;
                }
                let start = Instant::now();
                let body = |ctx: &Ctx| {
                    // What goes before is right.
                    ctx.barrier()?;
                    mistake(ctx)?;
                    ctx.barrier()
                };
                let Some(ran) = across_to_its_end(test, &mpi, place, &[], body)? else { continue };
                let took = start.elapsed();
                let told =
                    words.iter().all(|word| ran.err.contains(word) || ran.out.contains(word));
                let on = format!("{name} on {}, {place:?}", mpi.name);
                assert!(ran.code != Some(0) && told, "{on}: {ran:?}, {words:?} expected");
                println!("{on}: {:.1} s", took.as_secs_f64());
                // Found within 5 s; it takes a while to start, too.
                assert!(took < Duration::from_secs(10), "{on} took {took:?}");
            }
        }
    }
    Ok(())
}

// One each, as most of their time is waiting, which they can do together.
#[test]
fn mistakes_over_mpich() -> Result<()> {
    let places = [FLAT, (2, 2, "threads")];
    mistakes_over("mpich", "failures::mistakes_over_mpich", &places)
}

#[test]
fn mistakes_over_intel_mpi() -> Result<()> {
    let places = [FLAT, (2, 2, "threads")];
    mistakes_over("impi", "failures::mistakes_over_intel_mpi", &places)
}

/// Flat ones are made on two hosts.
#[test]
fn mistakes_over_what_is_linked() -> Result<()> {
    mistakes_over("linked", "failures::mistakes_over_what_is_linked", &[(2, 2, "threads")])
}

/// A launcher may go on for ever after that: `spmdrun` hears what has stopped the job.
#[test]
fn spmdrun_is_told_of_an_error() -> Result<()> {
    let test = "failures::spmdrun_is_told_of_an_error";
    for mpi in Mpi::all() {
        let alarm = Alarm::new(true)?;
        let place = alarm.place();
        let body = |ctx: &Ctx| match ctx.barrier() {
            Ok(()) if is_last(ctx) => Err("no more data".into()),
            outcome => outcome,
        };
        let settings = [("SPMD_ALARM", &*place)];
        let ran = across_to_its_end(test, &mpi, (2, 1, "threads"), &settings, body)?;
        let Some(ran) = ran else { continue };
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || tell.send(alarm.wait()));
        let told = told.recv_timeout(Duration::from_secs(5));
        assert!(matches!(&told, Ok(text) if text.contains("no more data")), "{told:?}, {ran:?}");
    }
    Ok(())
}

/// What ends several processes is said by each of them, in several pieces, and yet in whole lines.
#[test]
fn errors_of_several_processes_do_not_mix() -> Result<()> {
    let test = "failures::errors_of_several_processes_do_not_mix";
    for mpi in Mpi::all() {
        for _ in 0..if full() { 20 } else { 4 } {
            let body = |ctx: &Ctx| {
                ctx.barrier()?;
                Err(format!("no file {} of rank {}", "input.dat", ctx.rank()).into())
            };
            let Some(ran) = across_to_its_end(test, &mpi, (4, 1, "threads"), &[], body)? else {
                continue;
            };
            let told = |line: &&str| line.contains("Error: ") && line.contains("no file");
            let mixed = |line: &&str| line.matches("Error: ").count() > 1;
            assert!(ran.code != Some(0) && ran.err.lines().any(|line| told(&line)), "{ran:?}");
            assert!(!ran.err.lines().any(|line| mixed(&line)), "{ran:?}");
        }
    }
    Ok(())
}

/// The ports of this host alone at which this process listens: the failure detector's, on process
/// 0.
fn listening() -> Vec<u16> {
    let links = std::fs::read_dir("/proc/self/fd").expect("there is one").flatten();
    let own = links.filter_map(|link| std::fs::read_link(link.path()).ok());
    let own: Vec<String> = own.map(|link| link.display().to_string()).collect();
    let table = std::fs::read_to_string("/proc/net/tcp").expect("there is one");
    let port = |line: &str| {
        // Its number, its own address, the other's, its state, six more, and its inode.
        let words: Vec<&str> = line.split_whitespace().collect();
        let port = words.get(1)?.strip_prefix("0100007F:")?;
        let mine = words[3] == "0A" && own.contains(&format!("socket:[{}]", words.get(9)?));
        mine.then_some(u16::from_str_radix(port, 16).ok()).flatten()
    };
    table.lines().filter_map(port).collect()
}

/// Whatever says something to the failure detector of a job without knowing its secret is sent
/// away, and whatever says nothing disturbs nobody.
#[test]
fn strangers_at_the_failure_detector() -> Result<()> {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    let words: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        &[0xff; 64],
        // A greeting with another secret.
        &[1; 20],
        // A part of one, after which nothing comes.
        &[1; 19],
    ];
    // MPICH's library listens itself, unless the processes share memory alone.
    let settings = [("UCX_TLS", "self,sm")];
    everywhere(
        "failures::strangers_at_the_failure_detector",
        &[(2, 1, "threads")],
        &settings,
        |ctx| {
            let mut silent = Vec::new();
            if ctx.rank() == 0 {
                let [port] = listening()[..] else { panic!("the failure detector alone listens") };
                let connect = || TcpStream::connect(("127.0.0.1", port));
                for _ in 0..20 {
                    silent.push(connect()?);
                }
                for word in words {
                    let mut stranger = connect()?;
                    stranger.set_read_timeout(Some(Duration::from_secs(20)))?;
                    stranger.write_all(word)?;
                    let heard = stranger.read(&mut [0; 64]);
                    let closed = |kind| kind == std::io::ErrorKind::ConnectionReset;
                    let refused = heard.as_ref().map_or_else(|e| closed(e.kind()), |n| *n == 0);
                    assert!(refused, "{word:?}: {heard:?}");
                }
            }
            for _ in 0..20 {
                assert_eq!(ctx.allreduce_value(1, Sum)?, 2);
                std::thread::sleep(Duration::from_millis(50));
            }
            ctx.barrier()
        },
    )
}
