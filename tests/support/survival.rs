//! An iteration that saves what it has after each step, and goes on from there when ranks fail.

#![allow(dead_code, reason = "each test file uses a part of this")]

use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use spmd::Comm;
use spmd::prelude::*;

pub const STEPS: u64 = 24;
/// Numbers of the field that the ranks share: more than fit into a slot, and than any divides.
const FIELD: usize = 30_011;

/// When a rank dies: so many microseconds after it has begun this step.
#[derive(Clone, Copy)]
pub struct Doom {
    pub step: u64,
    pub micros: u64,
}

/// Kills the process of the rank that is doomed: its calls come back until it is dead.
pub type Kill = Arc<dyn Fn() + Send + Sync>;

fn die_in(micros: u64, kill: &Kill) {
    let kill = kill.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_micros(micros));
        kill();
    });
}

pub fn die() -> ! {
    kill_process(getpid(), Signal::KILL).expect("a process may signal itself");
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn die_at_once() {
    die()
}

/// One number of the field from it and its neighbours.
fn next(left: u64, own: u64, right: u64) -> u64 {
    left.wrapping_mul(3).wrapping_add(own.rotate_left(7)).wrapping_sub(right)
}

/// The iteration without ranks: the field, and the sum over it after each step, in a hash.
pub fn oracle() -> u64 {
    let mut saved = Saved::new();
    for _ in 0..STEPS {
        let at = |index: usize| saved.field[index % FIELD];
        let field = (0..FIELD).map(|i| next(at(i + FIELD - 1), at(i), at(i + 1))).collect();
        saved = saved.followed_by(field, |field| field.iter().fold(0, |a, b| a.wrapping_add(*b)));
    }
    saved.hash
}

/// What all ranks have after a step that all have made.
struct Saved {
    step: u64,
    field: Vec<u64>,
    hash: u64,
}

impl Saved {
    fn new() -> Saved {
        Saved { step: 0, field: (0..FIELD as u64).collect(), hash: 0 }
    }

    fn followed_by(&self, field: Vec<u64>, sum: impl FnOnce(&[u64]) -> u64) -> Saved {
        let hash = self.hash.wrapping_mul(31).wrapping_add(sum(&field));
        Saved { step: self.step + 1, field, hash }
    }
}

/// Goes on from what is saved to the end, or to the first failure.
fn iterate(comm: &Comm, saved: &mut Saved, doom: Option<Doom>, kill: &Kill) -> Result<()> {
    let (me, n) = (comm.rank(), comm.size());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let mine = me * FIELD / n..(me + 1) * FIELD / n;
    while saved.step < STEPS {
        if let Some(doom) = doom.filter(|doom| doom.step == saved.step) {
            die_in(doom.micros, kill);
        }
        std::thread::sleep(Duration::from_micros(300));
        let own = &saved.field[mine.clone()];
        let (mut before, mut after) = ([0], [0]);
        comm.sendrecv(&own[own.len() - 1..], right, 1, &mut before, left, 1)?;
        comm.sendrecv(&own[..1], left, 2, &mut after, right, 2)?;
        let at = |i: usize| if i == own.len() { after[0] } else { own[i] };
        let field = |i| next(if i == 0 { before[0] } else { own[i - 1] }, own[i], at(i + 1));
        let field: Vec<u64> = (0..own.len()).map(field).collect();
        let sum = field.iter().fold(0u64, |a, b| a.wrapping_add(*b));
        let sum = comm.allreduce_value(sum, Sum)?;
        let (whole, _) = comm.allgatherv_vec(&field)?.into_parts();
        if doom.is_some() && saved.step + 1 == STEPS {
            kill(); // whose time had not come
        }
        comm.agree(1)?;
        *saved = saved.followed_by(whole, |_| sum);
    }
    Ok(())
}

pub fn survive(ctx: &Ctx, doom: Option<Doom>) -> Result<u64> {
    survive_by(ctx, doom, &(Arc::new(die_at_once) as Kill))
}

/// [`survive`] where a process that is doomed is killed by `kill`.
pub fn survive_by(ctx: &Ctx, doom: Option<Doom>, kill: &Kill) -> Result<u64> {
    let mut saved = Saved::new();
    let mut comm = ctx.shrink()?;
    loop {
        match iterate(&comm, &mut saved, doom, kill) {
            Ok(()) => return Ok(saved.hash),
            Err(Error::PeerFailed(_)) => comm = comm.shrink()?,
            Err(other) => return Err(other),
        }
    }
}
