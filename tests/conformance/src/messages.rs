//! What messages must do, for any world to run: every size at which the way of the data changes,
//! their order, what a receive may ask for, and many at once.

mod sendrecv;

use std::time::Duration;

use crate::prelude::*;

use crate::element::{Flagged, Sample, bytes, random};
pub use sendrecv::{rings_of_sendrecv, rows_of_sendrecv, values_and_vectors};

const EAGER: usize = 8 * 1024;
const PIECE: usize = 16 * 1024;
pub const STAGING: usize = 16 * PIECE;

/// A case, and the ranks for which it is made, if it matters.
type Case = (fn(&Ctx) -> Result<()>, Option<usize>);

const ALL: &[Case] = &[
    (sizes_and_types, None),
    (rings_wrap_around, Some(2)),
    (data_are_not_taken_for_records, Some(2)),
    (repeats_among_others, Some(2)),
    (order_and_choice, None),
    (probing, None),
    (synchronous_sends_wait, Some(2)),
    (rings_of_sendrecv, None),
    (rows_of_sendrecv, None),
    (values_and_vectors, Some(2)),
    (views, Some(2)),
    (several_agents, None),
    (large_messages_at_once, Some(2)),
    (messages_that_do_not_fit, Some(2)),
];

/// All cases that are made for so many ranks.
pub fn all(ctx: &Ctx) -> Result<()> {
    for (case, ranks) in ALL {
        if ranks.is_none_or(|ranks| ranks == ctx.size()) {
            case(ctx)?;
            ctx.barrier()?;
        }
    }
    Ok(())
}

fn data<T: Sample>(stream: u64, count: usize) -> Vec<T> {
    (0..count).map(|index| T::made(random(stream, 0, index))).collect()
}

fn same<T: Sample>(got: &[T], expected: &[T]) -> bool {
    bytes(got) == bytes(expected)
}

/// Bytes around each limit: the inline ones, a ring's, a piece's, a staging area's.
const SIZES: [usize; 20] = [
    0,
    1,
    16,
    17,
    63,
    64,
    65,
    EAGER - 1,
    EAGER,
    EAGER + 1,
    PIECE - 1,
    PIECE,
    PIECE + 1,
    STAGING - 1,
    STAGING,
    STAGING + 1,
    2 * STAGING + PIECE,
    3 * STAGING + 5,
    5 * STAGING,
    100,
];

/// Messages of this type from the first rank to the last and back, of every size, in each manner.
fn pass<T: Sample>(ctx: &Ctx) -> Result<()> {
    let last = ctx.size() - 1;
    for (number, size) in SIZES.iter().enumerate() {
        let count = size / size_of::<T>();
        let (there, back) =
            (data::<T>(number as u64, count), data::<T>(100 + number as u64, count));
        let mut shared = ctx.alloc_shared::<T>(count)?;
        if ctx.rank() == 0 {
            ctx.send(&there, last, 1)?;
            ctx.ssend(&there, last, 2)?;
            shared.copy_from_slice(&there);
            ctx.send(&shared, last, 3)?;
            let (got, status) = ctx.recv_vec::<T>(last, 4)?;
            assert!(same(&got, &back) && status.len() == count && status.source() == last);
            ctx.recv(&mut shared, last, ANY)?;
            assert!(same(&shared, &back));
        } else if ctx.rank() == last {
            // A longer buffer keeps what the message does not reach.
            let mut room = data::<T>(7, count + 3);
            let status = ctx.recv(&mut room, 0, 1)?;
            assert_eq!((status.source(), status.tag(), status.len()), (0, 1, count));
            assert!(same(&room[..count], &there), "{size} bytes");
            assert!(same(&room[count..], &data::<T>(7, count + 3)[count..]));
            ctx.recv(&mut shared, ANY, 2)?;
            assert!(same(&shared, &there));
            let (got, _) = ctx.recv_vec::<T>(ANY, ANY)?;
            assert!(same(&got, &there));
            ctx.ssend(&back, 0, 4)?;
            ctx.send(&back, 0, 5)?;
        }
    }
    Ok(())
}

pub fn sizes_and_types(ctx: &Ctx) -> Result<()> {
    pass::<u8>(ctx)?;
    pass::<f64>(ctx)?;
    pass::<[f32; 3]>(ctx)?;
    pass::<bool>(ctx)?;
    pass::<Flagged>(ctx)
}

/// More than a ring holds, several times over, of changing sizes: the receiver comes late, then
/// the sender waits for room.
pub fn rings_wrap_around(ctx: &Ctx) -> Result<()> {
    let size = |number: usize| random(3, 0, number) as usize % (EAGER + 40);
    for number in 0..1500 {
        let expected = data::<u8>(number as u64, size(number));
        if ctx.rank() == 0 {
            ctx.send(&expected, 1, 6)?;
        } else {
            if number % 500 == 0 && ctx.mode() != spmd_core::Mode::Virtual {
                std::thread::sleep(Duration::from_millis(5));
            }
            let (got, _) = ctx.recv_vec::<u8>(0, 6)?;
            assert_eq!(got, expected, "message {number}");
        }
    }
    Ok(())
}

/// Data that look like the stamps of later records, where a ring will have those, are not taken
/// for messages.
pub fn data_are_not_taken_for_records(ctx: &Ctx) -> Result<()> {
    const RING: u64 = 64 * 1024;
    let (mut position, mut before) = (0u64, None);
    for number in 0..2000 {
        let lines = random(4, 0, number) as usize % 3 * (random(5, 0, number) as usize % 129);
        let lines = lines.min(EAGER / 64) as u64;
        if lines == 0 && before == Some(0) {
            // It is as the one before, and takes a quarter of a line.
            position += 16;
        } else {
            position = position.next_multiple_of(64);
            let to_end = RING - position % RING;
            position += if 64 * (1 + lines) > to_end { to_end } else { 0 } + 64;
        }
        before = Some(lines);
        let place = |index| position + 8 * index;
        let stamp = |index| place(index) + RING + 1 + number as u64 % 3;
        let stamps: Vec<u64> = (0..8 * lines).map(stamp).collect();
        position += 64 * lines;
        if ctx.rank() == 0 {
            ctx.send(&stamps, 1, 7)?;
            ctx.recv(&mut [0u8; 0], 1, 8)?;
        } else {
            assert!(ctx.recv_vec::<u64>(0, 7)?.0 == stamps, "message {number}");
            assert_eq!(ctx.iprobe(0, ANY)?, None, "after message {number}");
            ctx.send(&[0u8; 0], 0, 8)?;
        }
    }
    Ok(())
}

/// Messages that are as the one before them but for their data, among others, to a receiver that takes
/// them at its own pace, in any way.
pub fn repeats_among_others(ctx: &Ctx) -> Result<()> {
    for number in 0..12_000 {
        let choice = |which, below| (random(which, 0, number) % below) as usize;
        // As many as a run has are alike.
        let run = random(20, 0, number / (1 + number / 300));
        let (len, tag) = ((run % 6) as usize, (run / 6 % 2) as u32);
        let words: Vec<u16> = (0..len).map(|index| (number + index) as u16).collect();
        let wide = number as f64;
        if ctx.rank() == 0 {
            match choice(21, 20) {
                0 => ctx.send(&strided(&[words.clone(), words].concat(), 1, len, len)?, 1, tag)?,
                1 => ctx.ssend(&words, 1, tag)?,
                2 | 3 => ctx.isend(words, 1, tag)?.wait().map(drop)?,
                4 => ctx.requests(|requests| {
                    requests.isend(&words, 1, tag)?;
                    requests.isend([wide], 1, tag).map(drop)
                })?,
                _ => ctx.send(&words, 1, tag)?,
            }
            continue;
        }
        if number % 2000 == 0 && ctx.mode() != spmd_core::Mode::Virtual {
            std::thread::sleep(Duration::from_millis(5));
        }
        let (mut room, any_tag) = ([0u16; 8], choice(22, 2) == 0);
        let (got, status) = match choice(23, 12) {
            0 => ctx.recv_vec::<u16>(0, tag)?,
            1 => {
                let found = ctx.probe(0, ANY)?;
                assert_eq!((found.tag(), found.len()), (tag, len), "message {number}");
                ctx.recv_vec::<u16>(ANY, tag)?
            }
            2 => {
                let (room, status) = ctx.irecv(room, 0, tag)?.wait()?;
                (room.to_vec(), status)
            }
            3 => ctx.mprobe(0, tag)?.recv_vec::<u16>()?,
            _ if any_tag => (vec![], ctx.recv(&mut room, 0, ANY)?),
            _ => (vec![], ctx.recv(&mut room, 0, tag)?),
        };
        let got = if got.is_empty() { &room[..status.len()] } else { &got[..status.len()] };
        assert_eq!((got, status.tag(), status.source()), (&*words, tag, 0), "message {number}");
        if choice(21, 20) == 4 {
            assert_eq!(ctx.recv_vec::<f64>(0, tag)?.0, [wide], "after message {number}");
        }
    }
    Ok(())
}

/// Messages of one rank with one tag stay in order, whatever is received in between; receives
/// choose by source and tag. `large`: some messages wait for the receiver.
fn order(ctx: &Ctx, large: bool) -> Result<()> {
    const EACH: usize = 30;
    let (n, me) = (ctx.size(), ctx.rank());
    let length = |from: usize, number: usize| match (from + number) % 7 {
        3 if large => 3000,
        _ => number,
    };
    let values = |from: usize, number: usize| vec![number as u32; length(from, number)];
    if me > 0 {
        for number in 0..EACH {
            ctx.send(&values(me, number), 0, number as u32 % 3)?;
        }
        return ctx.send(&[me as u32], 0, 9);
    }
    let mut next = vec![[0, 1, 2]; n];
    if !large {
        // One tag first, though it is the last of each three, of the last rank first.
        for from in (1..n).rev() {
            for number in (2..EACH).step_by(3) {
                let (got, status) = ctx.recv_vec::<u32>(from, 2)?;
                assert_eq!((got, status.source()), (values(from, number), from));
            }
            next[from][2] = EACH + 2;
        }
    }
    let mut ended = 0;
    while ended < n - 1 {
        let (got, status) = ctx.recv_vec::<u32>(ANY, ANY)?;
        if status.tag() == 9 {
            assert_eq!(got, [status.source() as u32]);
            ended += 1;
        } else {
            let number = &mut next[status.source()][status.tag() as usize];
            assert_eq!(got, values(status.source(), *number), "{status:?}");
            *number += 3;
        }
    }
    assert!(next[1..].iter().all(|next| *next == [EACH, EACH + 1, EACH + 2]));
    Ok(())
}

pub fn order_and_choice(ctx: &Ctx) -> Result<()> {
    order(ctx, false)?;
    ctx.barrier()?;
    order(ctx, true)
}

pub fn probing(ctx: &Ctx) -> Result<()> {
    let (n, me) = (ctx.size(), ctx.rank());
    assert_eq!(ctx.iprobe(ANY, ANY)?, None);
    ctx.barrier()?;
    let (next, last) = ((me + 1) % n, (me + n - 1) % n);
    for count in [0usize, 1, 1000] {
        ctx.send(&vec![me as u64; count], next, 40 + count as u32)?;
    }
    let status = ctx.probe(last, 1040)?;
    assert_eq!((status.source(), status.tag(), status.len()), (last, 1040, 1000));
    assert_eq!(ctx.iprobe(ANY, 40)?.map(|status| status.len()), Some(0));
    assert_eq!(ctx.iprobe(last, 7)?, None);
    // A probe takes nothing away.
    assert_eq!(ctx.probe(ANY, 1040)?, status);
    let mut got = vec![0u64; status.len()];
    ctx.recv(&mut got, status.source(), status.tag())?;
    assert_eq!(got, vec![last as u64; 1000]);
    assert_eq!(ctx.iprobe(last, 1040)?, None);
    let first = ctx.probe(ANY, ANY)?;
    assert_eq!((first.tag(), first.is_empty()), (40, true));
    ctx.recv(&mut [0u64; 0], last, 40)?;
    assert_eq!(ctx.recv_vec::<u64>(last, ANY)?.0, [last as u64]);
    // A large one is seen before it is taken.
    if n > 1 && me == 0 {
        ctx.send(&vec![1.5f32; 50_000], 1, 3)?;
    } else if n > 1 && me == 1 {
        let status = ctx.probe(0, ANY)?;
        let mut got = vec![0f32; status.len()];
        ctx.recv(&mut got, 0, 3)?;
        assert_eq!(got, vec![1.5; 50_000]);
    }
    assert_eq!(ctx.iprobe(ANY, ANY)?, None);
    Ok(())
}

/// When `ssend` has returned, its message has been taken: what the receiver sent before that is
/// there.
pub fn synchronous_sends_wait(ctx: &Ctx) -> Result<()> {
    for count in [0, 1, 1000, 100_000] {
        if ctx.rank() == 0 {
            ctx.ssend(&vec![3u8; count], 1, 1)?;
            assert!(ctx.iprobe(1, 2)?.is_some(), "{count}");
            ctx.recv(&mut [0u8], 1, 2)?;
        } else {
            let sent = (ctx.send(&[1u8], 0, 2)?, ctx.recv_vec::<u8>(0, 1)?).1;
            assert_eq!(sent.0, vec![3; count]);
        }
    }
    Ok(())
}

/// Views with gaps at one end, the other, or both.
pub fn views(ctx: &Ctx) -> Result<()> {
    for rows in [1, 5, 60, 500] {
        let shape = [rows, 40];
        let grid: Vec<f64> = data(rows as u64, rows * 40);
        let columns = |grid: &[f64], range: std::ops::Range<usize>| -> Vec<f64> {
            grid.chunks(40).flat_map(|row| row[range.clone()].to_vec()).collect()
        };
        if ctx.rank() == 0 {
            ctx.send(&strided(&grid[3..], rows, 1, 40)?, 1, 1)?;
            ctx.send(&subarray(&grid, &shape, &[0..rows, 4..34])?, 1, 2)?;
            ctx.ssend(&columns(&grid, 8..38), 1, 3)?;
            let mut sent = grid.clone();
            let sending = strided(&grid[5..], rows, 2, 40)?;
            let mut into = strided_mut(&mut sent[30..], rows, 2, 40)?;
            ctx.sendrecv(&sending, 1, 4, &mut into, 1, 4)?;
            assert!(same(&columns(&sent, 30..32), &columns(&grid, 20..22)));
        } else {
            let mut into = vec![-1.0; rows * 40];
            ctx.recv(&mut subarray_mut(&mut into, &shape, &[0..rows, 6..7])?, 0, 1)?;
            assert!(same(&columns(&into, 6..7), &columns(&grid, 3..4)));
            let (got, _) = ctx.recv_vec::<f64>(0, 2)?;
            assert!(same(&got, &columns(&grid, 4..34)));
            ctx.recv(&mut strided_mut(&mut into[7..], rows, 30, 40)?, 0, 3)?;
            assert!(same(&columns(&into, 7..37), &columns(&grid, 8..38)));
            assert!(columns(&into, 0..6).iter().all(|value| *value == -1.0));
            let mut got = vec![0.0; rows * 2];
            ctx.sendrecv(&columns(&grid, 20..22), 0, 4, &mut got, 0, 4)?;
            assert!(same(&got, &columns(&grid, 5..7)));
        }
    }
    Ok(())
}

/// Several threads of each rank, each with a communicator of its own and large and small messages
/// for both neighbours at once; the rank itself too.
pub fn several_agents(ctx: &Ctx) -> Result<()> {
    let work = |comm: &Comm, agent: u64| -> Result<()> {
        let (n, me) = (comm.size(), comm.rank());
        for round in 0..12u64 {
            let count = if round % 3 == 0 { 40_000 } else { 10 * round as usize };
            let stream = |rank: usize| agent * 1000 + round * 50 + rank as u64;
            let (next, last) = ((me + 1) % n, (me + n - 1) % n);
            let mut got = vec![0u32; count];
            comm.sendrecv(&data::<u32>(stream(me), count), next, 1, &mut got, last, ANY)?;
            assert!(same(&got, &data(stream(last), count)));
        }
        Ok(())
    };
    let mut agents = Vec::new();
    for agent in 1..=6 {
        let comm = ctx.dup()?;
        agents.push(std::thread::spawn(move || work(&comm, agent)));
    }
    work(ctx, 0)?;
    // A virtual rank must not block its worker, on which others run.
    while agents.iter().any(|agent| !agent.is_finished()) {
        ctx.iprobe(ANY, 99)?;
    }
    agents.into_iter().try_for_each(|agent| agent.join().expect("a failure is an error"))
}

/// Large messages of several threads to one rank don't wait for each other to be received.
pub fn large_messages_at_once(ctx: &Ctx) -> Result<()> {
    const AGENTS: u32 = 12;
    let copies: Vec<Comm> = (0..AGENTS).map(|_| ctx.dup()).collect::<Result<_>>()?;
    if ctx.rank() == 0 {
        let send = |comm: Comm, tag| comm.send(&vec![tag; 10_000], 1, tag);
        let agents = copies.into_iter().zip(0..);
        let agents = agents.map(|(comm, tag)| std::thread::spawn(move || send(comm, tag)));
        let agents: Vec<_> = agents.collect();
        while agents.iter().any(|agent| !agent.is_finished()) {
            ctx.iprobe(ANY, ANY)?;
        }
        return agents.into_iter().try_for_each(|agent| agent.join().expect("no panic"));
    }
    // All of them are on their way before the first is received.
    for (comm, tag) in copies.iter().zip(0..AGENTS) {
        assert_eq!(comm.probe(ANY, tag)?.len(), 10_000);
    }
    for (comm, tag) in copies.iter().zip(0..AGENTS).rev() {
        assert_eq!(comm.recv_vec::<u32>(0, tag)?.0, vec![tag; 10_000]);
    }
    Ok(())
}

/// A message that cannot be received is consumed, and overwrites nothing; the sender goes on.
pub fn messages_that_do_not_fit(ctx: &Ctx) -> Result<()> {
    for count in [10usize, 20_000] {
        if ctx.rank() == 0 {
            ctx.send(&vec![1i32; count], 1, 1)?;
            ctx.send(&vec![2i32; count], 1, 1)?;
            ctx.send(&vec![3i32; count], 1, 1)?;
        } else {
            let mut short = vec![7i32; count - 1];
            let error = ctx.recv(&mut short, 0, 1).unwrap_err();
            assert!(matches!(&error, Error::Truncated(message) if message.len == count), "{error}");
            assert!(short.iter().all(|value| *value == 7));
            let mut other = vec![7u32; count];
            let error = ctx.recv(&mut other, 0, 1).unwrap_err();
            assert!(matches!(error, Error::ElementType(_)), "{error}");
            assert!(other.iter().all(|value| *value == 7));
            assert_eq!(ctx.recv_vec::<i32>(0, 1)?.0, vec![3; count]);
        }
    }
    Ok(())
}
