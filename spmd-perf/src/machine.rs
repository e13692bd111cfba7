//! What bounds every transport on this machine: the rate of `memcpy`, the time that a cache line
//! takes from one core to another, and the time to copy what the other core has just written.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use serde_json::json;
use spmd::Mode;
use spmd::prelude::*;

const COPIED: usize = 1 << 20;
const COPIES: usize = 10;
const TURNS: u32 = 500;
/// Each is measured this often, in turns short enough that others seldom interrupt one; the median
/// counts.
const SAMPLES: usize = 401;

/// The flag that the two ranks pass to and fro, on a line of its own.
static FLAG: CachePadded<AtomicU32> = CachePadded::new(AtomicU32::new(0));

/// What each of the two ranks writes and the other copies.
static WRITTEN: [Mutex<OnPage>; 2] = [Mutex::new(OnPage::NONE), Mutex::new(OnPage::NONE)];

/// Bytes of these.
const EXCHANGED: [(&str, usize); 2] = [("64kib", 64 << 10), ("1mib", 1 << 20)];

/// Measures these on two ranks that are threads; rank 0 prints one JSON object.
///
/// Errors: these are other ranks.
pub(crate) fn measure(ctx: &Ctx) -> Result<()> {
    if ctx.mode() != Mode::Threads || ctx.size() != 2 {
        return Err("machine needs two ranks that are threads: spmdrun -n 2 --as threads --bind \
                    core spmd-perf machine"
            .into());
    }
    let one_way = median((0..SAMPLES).map(|_| one_way_ns(ctx)).collect::<Result<_>>()?);
    let mut found = json!({ "cache_line_one_way_ns": one_way });
    for (name, bytes) in EXCHANGED {
        let times = (0..SAMPLES).map(|turn| copies_us(ctx, bytes, turn as u8));
        let (own, other) = times.collect::<Result<Vec<_>>>()?.into_iter().unzip();
        found[format!("copy_own_{name}_us")] = json!(median(own));
        found[format!("copy_other_{name}_us")] = json!(median(other));
    }
    if ctx.rank() == 0 {
        let rate = median((0..SAMPLES).map(|_| memcpy_gbps()).collect());
        found["memcpy_1mib_gbps"] = json!(rate);
        println!("{found}");
    }
    ctx.barrier()
}

/// Bytes that begin on a page: where the places of two in their pages differ by a few bytes, `memcpy` takes
/// twenty times as long on some machines, which the library does not.
struct OnPage {
    all: Vec<u8>,
    start: usize,
}

impl OnPage {
    const NONE: OnPage = OnPage { all: Vec::new(), start: 0 };
    const PAGE: usize = 4 << 10;

    fn new(byte: u8, bytes: usize) -> OnPage {
        let all = vec![byte; bytes + OnPage::PAGE];
        let start = all.as_ptr().align_offset(OnPage::PAGE);
        OnPage { all, start }
    }

    fn bytes(&mut self) -> &mut [u8] {
        let end = self.all.len() - OnPage::PAGE + self.start;
        &mut self.all[self.start..end]
    }
}

/// Both ranks write so many bytes; then each copies its own, and what the other has written.
fn copies_us(ctx: &Ctx, bytes: usize, turn: u8) -> Result<(f64, f64)> {
    let mut target = OnPage::new(0, bytes);
    let mut copy = |from: &Mutex<OnPage>| {
        let mut from = from.lock().map_err(|_| "the other rank has panicked")?;
        let start = Instant::now();
        target.bytes().copy_from_slice(black_box(from.bytes()));
        black_box(&mut target.all);
        Ok::<_, &str>(start.elapsed().as_secs_f64() * 1e6)
    };
    let mine = &WRITTEN[ctx.rank()];
    *mine.lock().map_err(|_| "the other rank has panicked")? = OnPage::new(turn, bytes);
    copy(mine)?;
    let own = copy(mine)?;
    ctx.barrier()?;
    let other = copy(&WRITTEN[1 - ctx.rank()])?;
    ctx.barrier()?;
    Ok((own, other))
}

fn one_way_ns(ctx: &Ctx) -> Result<f64> {
    ctx.barrier()?;
    let mine = ctx.rank() as u32;
    let start = Instant::now();
    for turn in 0..TURNS {
        // Even values are rank 0's to answer, odd ones rank 1's.
        // Without a pause, which would take as long as the line.
        while FLAG.load(Ordering::Acquire) != 2 * turn + mine {}
        FLAG.store(2 * turn + mine + 1, Ordering::Release);
    }
    let took = start.elapsed().as_secs_f64();
    ctx.barrier()?;
    FLAG.store(0, Ordering::Release);
    Ok(took * 1e9 / f64::from(2 * TURNS))
}

fn memcpy_gbps() -> f64 {
    let (mut from, mut to) = (OnPage::new(1, COPIED), OnPage::new(2, COPIED));
    let start = Instant::now();
    for _ in 0..COPIES {
        to.bytes().copy_from_slice(black_box(from.bytes()));
        black_box(&mut to.all);
    }
    (COPIES * COPIED) as f64 / start.elapsed().as_secs_f64() / 1e9
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
