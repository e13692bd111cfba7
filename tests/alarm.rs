//! `spmdrun` hears what has stopped a job under MPI, whatever strangers do at its port, and though
//! its system has no descriptors left for a while. One test: it uses up the descriptors of its
//! process.

#![cfg(target_os = "linux")]

use std::fs::{File, read_dir};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use spmd_core::boot::Alarm;

/// Set in the process that says what has happened: where, and what.
const PLACE: &str = "SPMD_TEST_PLACE";
const TEST: &str = "an_alarm_is_heard_whatever_strangers_do";
const SAID: &str = "rank 7 failed";
/// Much longer than it takes, and much less than what one stranger after the other would take.
const SOON: Duration = Duration::from_secs(15);

/// Says it to the alarm at this place.
fn tell(place: &str) {
    let (key, address) = place.split_once(',').expect("a secret and an address");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(format!("{key}{SAID}").as_bytes()).expect("it is connected");
}

#[test]
fn an_alarm_is_heard_whatever_strangers_do() {
    if let Ok(place) = std::env::var(PLACE) {
        std::io::stdin().read_exact(&mut [0]).expect("the test says when");
        return tell(&place);
    }
    // First, as strangers close their ends when they please.
    without_descriptors();
    among_strangers();
}

fn among_strangers() {
    let alarm = Alarm::new(true).expect("there are ports");
    let place = alarm.place();
    let address = place.split_once(',').expect("a secret and an address").1.to_owned();
    assert!(address.starts_with("127.0.0.1:"), "on this host alone: {address}");
    let heard = std::thread::spawn(move || alarm.wait());
    let connect = || TcpStream::connect(&address).expect("it listens");
    let _silent: Vec<TcpStream> = (0..300).map(|_| connect()).collect();
    // One that sends more than anybody may, and some that send a byte now and then.
    let _ = connect().write_all(&[b'x'; 1 << 20]);
    for mut stranger in [connect(), connect(), connect()] {
        std::thread::spawn(move || {
            while stranger.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(900));
            }
        });
    }
    std::thread::sleep(Duration::from_millis(200));
    let start = Instant::now();
    tell(&place);
    assert_eq!(heard.join().expect("it does not panic"), SAID);
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

fn without_descriptors() {
    let alarm = Alarm::new(true).expect("there are ports");
    let mut teller = Command::new(std::env::current_exe().expect("a test knows its own path"))
        .args([TEST, "--exact"])
        .env(PLACE, alarm.place())
        .stdin(Stdio::piped())
        .spawn()
        .expect("it starts again");
    let (tell, told) = channel();
    std::thread::spawn(move || tell.send(alarm.wait()));
    let all = read_dir("/proc/self/fd").expect("there is one").count() as i32;
    let null = || File::open("/dev/null").expect("there are descriptors yet");
    // All numbers below the limit are in use.
    let mut taken = vec![null()];
    while taken.last().expect("one is there").as_raw_fd() < all + 8 {
        taken.push(null());
    }
    let most = taken.last().expect("one is there").as_raw_fd() as u64 + 1;
    let before = getrlimit(Resource::Nofile);
    let limit = Rlimit { current: Some(most), ..before };
    setrlimit(Resource::Nofile, limit).expect("a process may lower its own limit");
    assert!(File::open("/dev/null").is_err(), "descriptors are left");
    // Kept open: no number becomes free.
    let mut go = teller.stdin.take().expect("it is piped");
    go.write_all(b"!").expect("it reads");
    assert!(teller.wait().expect("it is a child").success());
    let early = told.recv_timeout(Duration::from_millis(500));
    setrlimit(Resource::Nofile, before).expect("up to the hard limit");
    assert_eq!(early, Err(RecvTimeoutError::Timeout));
    assert_eq!(told.recv_timeout(SOON).as_deref(), Ok(SAID));
}
