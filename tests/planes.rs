//! Planes: calls on memory that the arena does not reach, carried out by something else. Here that
//! is a card that is none: its memory is the host's, under another place, and its kernels are what
//! one rank does for all.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use spmd::buffer::{Place, View, ViewMut};
use spmd::prelude::*;
use spmd::{Buffer, BufferMut, Element};
use spmd_core::internal::{Args, Blocks, Call, Kind, Plane, fold_ranks};

/// Memory of the card.
struct OnCard<T>(Vec<T>);

// SAFETY: the vector is borrowed as the view is; what says that it lies on a card only keeps others
// from reading it.
unsafe impl<T: Element> Buffer for OnCard<T> {
    type Elem = T;

    fn erased(&self) -> View<'_> {
        // SAFETY: the vector holds so many values.
        unsafe { View::on_device(CARD, self.0.as_ptr(), self.0.len()) }
    }
}

// SAFETY: as above; the borrow is unique.
unsafe impl<T: Element> BufferMut for OnCard<T> {
    fn erased_mut(&mut self) -> ViewMut<'_> {
        // SAFETY: as above.
        unsafe { ViewMut::on_device(CARD, self.0.as_mut_ptr(), self.0.len()) }
    }
}

const CARD: u32 = 0;

/// What it has done.
#[derive(Debug, Default)]
struct Card {
    launches: AtomicUsize,
}

impl Plane for Card {
    fn name(&self) -> &str {
        "card"
    }

    fn is_for(&self, spans_processes: bool) -> bool {
        !spans_processes
    }

    fn serves(&self, _: &Comm, args: &Args<'_>) -> bool {
        let known = [Kind::Broadcast, Kind::Allreduce, Kind::Allgather, Kind::Alltoall];
        let here = |place| place == Place::Device(CARD);
        let memory = [args.send, args.recv].into_iter().filter(|memory| memory.is_some());
        known.contains(&args.collective.kind) && memory.clone().all(|it| here(it.place))
    }

    unsafe fn run(&self, comm: &Comm, call: &Call<'_>, args: &Args<'_>) -> Result<()> {
        comm.internals().collective(call, |round| {
            let size = size_of::<Args<'_>>();
            // SAFETY: it stays where it is until all have met twice, and nobody writes it.
            unsafe { round.expose(0, std::ptr::from_ref(args).cast(), size) };
            round.arrive(1)?;
            if round.rank() == 0 {
                self.launches.fetch_add(1, Relaxed);
                let peers = (1..round.size()).map(|peer| {
                    let place = round.reach(peer, 0, size)?.ok_or_else(|| round.lied(peer))?;
                    // SAFETY: whoever makes this call shows what it brings until the next meeting.
                    Ok(unsafe { *place.cast::<Args<'_>>() })
                });
                let peers = peers.collect::<Result<Vec<_>>>()?;
                let all: Vec<Args<'_>> = std::iter::once(*args).chain(peers).collect();
                // SAFETY: all ranks hold their memory until the next meeting.
                unsafe { launch(&all) };
            }
            round.arrive(2)
        })
    }
}

/// Does for all ranks what they called.
///
/// # Safety
/// They bring what the call needs, in rank order, and nobody else touches it now. In an alltoall,
/// `send` and `recv` are apart.
unsafe fn launch(all: &[Args<'_>]) {
    let (n, size) = (all.len(), all[0].size());
    let bytes = |blocks: Blocks<'_>| blocks.total(n) * size;
    // SAFETY: the memory, which is the host's, holds the blocks of the call or has room for them,
    // and nobody else touches it (this function's contract). That of different ranks is apart, as
    // are `send` and `recv` of one rank in an alltoall.
    unsafe {
        match all[0].collective.kind {
            Kind::Broadcast => {
                let root = all[0].root;
                for args in all.iter().enumerate().filter(|(rank, _)| *rank != root) {
                    let (from, into) = (all[root].recv, args.1.recv);
                    std::ptr::copy_nonoverlapping(from.ptr, into.ptr, bytes(into.blocks));
                }
            }
            Kind::Allreduce => {
                let (op, count) = (all[0].op.expect("it has one"), all[0].send.blocks.longest());
                let mut result = vec![0u8; count * size];
                let mut input = |rank: usize| all[rank].send.ptr.cast_const();
                fold_ranks(op, size, result.as_mut_ptr(), count, n, &mut input, &mut Vec::new());
                for args in all {
                    std::ptr::copy_nonoverlapping(result.as_ptr(), args.recv.ptr, result.len());
                }
            }
            Kind::Allgather => {
                for (rank, from) in all.iter().enumerate() {
                    for into in all {
                        let start = into.recv.blocks.of(rank).0 * size;
                        let place = into.recv.ptr.add(start);
                        std::ptr::copy(from.send.ptr, place, bytes(from.send.blocks));
                    }
                }
            }
            _ => {
                let block = all[0].send.blocks.longest() * size;
                let apart = all.iter().all(|args| args.send.ptr != args.recv.ptr);
                assert!(block == 0 || apart, "in place");
                for (from, into) in (0..n * n).map(|it| (it / n, it % n)) {
                    let source = all[from].send.ptr.add(into * block);
                    let target = all[into].recv.ptr.add(from * block);
                    std::ptr::copy_nonoverlapping(source, target, block);
                }
            }
        }
    }
}

fn everywhere(ranks: usize) -> [Spmd; 2] {
    [Spmd::new(ranks).threads(), Spmd::new(ranks).virtual_ranks()]
}

/// With an array for each rank and one element, more than a small message, and none.
#[test]
fn a_plane_carries_out_what_it_serves() -> Result<()> {
    for count in [1, 3000, 0] {
        for ranks in [2, 3, 5] {
            for block in everywhere(ranks) {
                let card = Arc::new(Card::default());
                block.plane(card.clone()).run(|ctx| on_card(ctx, count))?;
                assert_eq!(card.launches.load(Relaxed), 5);
            }
        }
    }
    Ok(())
}

fn on_card(ctx: &Ctx, count: usize) -> Result<()> {
    let (me, n) = (ctx.rank(), ctx.size());
    let data = |rank: usize| (0..count).map(move |at| (rank * 7 + at) as f64 / 3.0);
    let mine = OnCard(data(me).collect::<Vec<f64>>());
    let mut sums = OnCard(vec![0.0; count]);
    ctx.allreduce(&mine, &mut sums, Sum)?;
    let mut expected = vec![0.0; count];
    ctx.allreduce(&mine.0, &mut expected, Sum)?;
    assert!(sums.0.iter().zip(&expected).all(|(one, other)| one.to_bits() == other.to_bits()));
    let mut same = OnCard(mine.0.clone());
    ctx.allreduce_in_place(&mut same, Sum)?;
    assert_eq!(same.0, sums.0);
    let mut all = OnCard(vec![0.0; n * count]);
    ctx.allgather(&mine, &mut all)?;
    assert!(all.0.iter().copied().eq((0..n).flat_map(data)));
    let mut from_each = OnCard(vec![0.0; n * count]);
    let to_each = OnCard((0..n).flat_map(|to| data(me * n + to)).collect::<Vec<f64>>());
    ctx.alltoall(&to_each, &mut from_each)?;
    assert!(from_each.0.iter().copied().eq((0..n).flat_map(|from| data(from * n + me))));
    let mut of_last = OnCard(mine.0.clone());
    ctx.broadcast(&mut of_last, n - 1)?;
    assert!(of_last.0.iter().copied().eq(data(n - 1)));
    Ok(())
}

/// What neither a plane nor the arena reaches is an error that says so, on the rank that asks for
/// it.
#[test]
fn memory_out_of_reach_is_an_error() {
    let refused = |block: Spmd, f: fn(&Ctx) -> Result<()>| {
        let error = block.run(f).expect_err("nobody reaches it").to_string();
        assert!(error.contains("the device that its memory is on"), "{error}");
        assert!(error.contains("at tests/planes.rs"), "{error}");
    };
    let scan = |ctx: &Ctx| ctx.scan_in_place(&mut OnCard(vec![1]), Sum);
    let message = |ctx: &Ctx| match ctx.rank() {
        0 => ctx.send(&OnCard(vec![1]), 1, 0),
        _ => ctx.recv(&mut [0], 0, 0).map(drop),
    };
    let room = |ctx: &Ctx| match ctx.rank() {
        0 => ctx.recv(&mut OnCard(vec![1]), 1, 0).map(drop),
        _ => Ok(()),
    };
    for block in everywhere(2) {
        // With a plane that serves others, and without one.
        refused(block.clone().plane(Arc::new(Card::default())), scan);
        refused(block.clone(), |ctx| ctx.allreduce_in_place(&mut OnCard(vec![1]), Sum));
        refused(block.clone(), message);
        refused(block, room);
    }
    refused(Spmd::new(1), |ctx| ctx.allreduce_in_place(&mut OnCard(vec![1]), Sum));
}

#[test]
fn a_communicator_names_its_planes() -> Result<()> {
    for block in everywhere(2) {
        let said = block.plane(Arc::new(Card::default())).run(|ctx| Ok(ctx.describe()))?;
        assert!(
            said[0].starts_with("2 ranks, as ") && said[0].ends_with("planes: card"),
            "{said:?}"
        );
    }
    Ok(())
}

/// The buffers of a call are in one memory: the device's, or the host's.
#[test]
fn buffers_in_different_memories_are_told() {
    for block in everywhere(2) {
        let ended = block
            .plane(Arc::new(Card::default()))
            .run(|ctx| ctx.allreduce(&[1], &mut OnCard(vec![0]), Sum));
        let Err(Error::MixedPlaces(mixed)) = ended else { panic!("{ended:?}") };
        assert_eq!((mixed.send, mixed.recv), (Place::Host, Place::Device(CARD)));
        assert!(mixed.to_string().contains("tests/planes.rs"), "{mixed}");
    }
}

/// Where memory is must agree: what ranks do with it differs.
#[test]
fn ranks_that_disagree_on_the_place_are_told() {
    for block in everywhere(3) {
        let ended = block.plane(Arc::new(Card::default())).run(|ctx| match ctx.rank() {
            1 => ctx.allreduce_in_place(&mut OnCard(vec![1]), Sum),
            _ => ctx.allreduce_in_place(&mut [1], Sum),
        });
        let error = ended.expect_err("they do not fit together").to_string();
        assert!(error.contains("do not match"), "{error}");
    }
}

#[test]
fn a_plane_does_not_touch_other_calls() -> Result<()> {
    for block in everywhere(3) {
        let card = Arc::new(Card::default());
        let sums = block.plane(card.clone()).run(|ctx| {
            let half = ctx.split(Some((ctx.rank() % 2) as u32), 0)?.expect("a color");
            ctx.barrier()?;
            half.allreduce_value(ctx.rank(), Sum)
        })?;
        assert_eq!((sums, card.launches.load(Relaxed)), (vec![2, 1, 2], 0));
    }
    Ok(())
}

/// Calls that look at buffers by themselves: persistent ones, windows, requests.
#[test]
fn memory_out_of_reach_is_not_touched() -> Result<()> {
    let far = || OnCard(vec![1.0; 3]);
    for block in everywhere(2) {
        let card = Arc::new(Card::default());
        block.plane(card.clone()).run(|ctx| {
            let mut call = ctx.allreduce_init(far(), far(), Sum)?;
            call.start()?;
            call.wait()?;
            assert_eq!(call.recv()?.0, [2.0; 3]);
            assert_eq!(card.launches.load(Relaxed), 1);
            let window = ctx.window::<f64>(3)?;
            window.fence()?;
            let refused = |done: Result<()>| {
                let error = done.expect_err("nobody reaches it").to_string();
                assert!(error.contains("the device that its memory is on"), "{error}");
            };
            refused(window.put(&far(), 0, 0));
            refused(window.get(&mut far(), 0, 0));
            refused(window.accumulate(&far(), 0, 0, Sum));
            refused(window.get_accumulate(&[1.0; 3], &mut far(), 0, 0, Sum));
            window.fence()?;
            let (sent, mut room) = (far(), far());
            refused(ctx.requests(|requests| requests.isend(&sent, 1, 0).map(drop)));
            refused(ctx.requests(|requests| requests.irecv(&mut room, 1, 0).map(drop)));
            refused(ctx.send_init(far(), 1, 0).map(drop));
            refused(ctx.sendrecv(&far(), 1, 0, &mut far(), 1, 0).map(drop));
            Ok(())
        })?;
    }
    Ok(())
}
