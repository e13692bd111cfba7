//! Buffers of messages that go on, by way of the host where they are on a device. What is sent is copied
//! to the host when it is started, by whoever starts it, and what is received comes to the device when
//! it is there, by the same agent: whoever brings a message, or the thread beside a rank, knows the
//! memory of the host alone, which lives as long as the message goes on. So both copies are in the order
//! of the agent's stream.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::buffer::{
    Buffer, BufferMut, Place, StagedRoom, StagedView, View, ViewMut, is_reached, on_host,
};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::panics::{discard, panic_text};

/// An error where the memory of a call cannot come to the host.
pub(super) fn check_place(call: &Call<'_>, place: Place) -> Result<()> {
    if is_reached(place) { Ok(()) } else { Err(Error::out_of_reach(call, &[])) }
}

/// What is sent.
pub(super) struct SendBuffer<B> {
    buf: B,
    stage: Option<Box<StagedView>>,
}

impl<B: Buffer> SendBuffer<B> {
    /// Copies what is on a device, for which it waits.
    ///
    /// Errors: nobody knows how to; the host has no room; the device fails.
    #[inline]
    pub(super) fn new(buf: B, call: &Call<'_>) -> Result<SendBuffer<B>> {
        let mut stage = None;
        on_host(buf.erased(), &mut stage, &|| Error::out_of_reach(call, &[]))?;
        Ok(SendBuffer { buf, stage: stage.map(Box::new) })
    }

    #[inline]
    pub(super) fn erased(&self) -> View<'_> {
        self.stage.as_ref().map_or_else(|| self.buf.erased(), |stage| stage.erased())
    }

    #[inline]
    pub(super) fn into_inner(self) -> B {
        self.buf
    }
}

/// Where a message is received.
pub(super) struct ReceiveBuffer<B> {
    buf: B,
    stage: Option<Box<StagedRoom>>,
}

impl<B: BufferMut> ReceiveBuffer<B> {
    /// Errors: nobody knows how to copy to where it is; the host has no room.
    #[inline]
    pub(super) fn new(mut buf: B, call: &Call<'_>) -> Result<ReceiveBuffer<B>> {
        let view = buf.erased_mut();
        let stage = match view.place() {
            Place::Host => None,
            _ => Some(Box::new(StagedRoom::new(&view, &|| Error::out_of_reach(call, &[]))?)),
        };
        Ok(ReceiveBuffer { buf, stage })
    }

    /// Where the host writes what comes.
    #[inline]
    pub(super) fn erased_mut(&mut self) -> ViewMut<'_> {
        match &mut self.stage {
            Some(stage) => stage.erased_mut(),
            None => self.buf.erased_mut(),
        }
    }

    /// Brings the elements that have come, as many as `count`, to where the buffer is. May wait for the
    /// device, and do whatever the buffer's type does: for who has locked nothing that has come.
    ///
    /// Errors: the device fails; the buffer panics.
    ///
    /// # Safety
    /// So many were written to [`erased_mut`](ReceiveBuffer::erased_mut).
    #[inline]
    pub(super) unsafe fn land(&mut self, call: &Call<'_>, count: usize) -> Result<()> {
        let ReceiveBuffer { buf, stage } = self;
        let Some(stage) = stage else { return Ok(()) };
        // SAFETY: this function's contract; the view is that of the same buffer.
        let land = || unsafe { stage.land(&mut buf.erased_mut(), count) };
        catch_unwind(AssertUnwindSafe(land)).unwrap_or_else(|payload| {
            let why = format!("{call}: its buffer panicked: {}", panic_text(&*payload));
            discard(payload);
            Err(Error::argument(why))
        })
    }

    #[inline]
    pub(super) fn into_inner(self) -> B {
        self.buf
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::Cell;
    use std::ptr::copy_nonoverlapping;

    use super::*;
    use crate::buffer::{DeviceCopies, Rows, set_device_copies};
    use crate::{Progress, Spmd, rank_local};

    /// Memory of a card, which is the host's under another place.
    struct OnCard {
        elements: Vec<u32>,
        /// How many more times it can be written.
        writes: u32,
    }

    // SAFETY: the vector is borrowed as the view is; its place keeps all but the copies from it.
    unsafe impl Buffer for OnCard {
        type Elem = u32;

        fn erased(&self) -> View<'_> {
            // SAFETY: the vector holds so many values.
            unsafe { View::on_device(0, self.elements.as_ptr(), self.elements.len()) }
        }
    }

    // SAFETY: as above; the borrow is unique.
    unsafe impl BufferMut for OnCard {
        fn erased_mut(&mut self) -> ViewMut<'_> {
            self.writes = self.writes.checked_sub(1).expect("it is worn out");
            // SAFETY: as above.
            unsafe { ViewMut::on_device(0, self.elements.as_mut_ptr(), self.elements.len()) }
        }
    }

    rank_local! {
        /// How many copies this rank has made, on its own thread.
        static COPIES: Cell<u32> = Cell::new(0);
    }

    /// # Safety
    /// There are so many bytes at both places, apart from each other.
    unsafe fn to_host(_: u32, from: &[Rows], into: *mut u8) -> Result<()> {
        COPIES.with(|copies| copies.set(copies.get() + 1));
        let [from @ Rows { count: 1, .. }] = from else { panic!("{from:?} is not one row") };
        // SAFETY: this function's contract.
        unsafe { copy_nonoverlapping(from.start as *const u8, into, from.bytes) };
        Ok(())
    }

    /// # Safety
    /// As [`to_host`].
    unsafe fn to_device(_: u32, from: *const u8, into: &[Rows]) -> Result<()> {
        COPIES.with(|copies| copies.set(copies.get() + 1));
        let [into @ Rows { count: 1, .. }] = into else { panic!("{into:?} is not one row") };
        // SAFETY: this function's contract.
        unsafe { copy_nonoverlapping(from, into.start as *mut u8, into.bytes) };
        Ok(())
    }

    fn filled(with: u32, count: usize, writes: u32) -> OnCard {
        // SAFETY: they copy so many bytes.
        unsafe { set_device_copies(DeviceCopies { to_host, to_device }) };
        OnCard { elements: vec![with; count], writes }
    }

    fn everywhere(ranks: usize) -> [Spmd; 4] {
        let blocks = [Spmd::new(ranks).threads(), Spmd::new(ranks).virtual_ranks()];
        let [threads, virtual_ranks] = blocks;
        let helped = [threads.clone(), virtual_ranks.clone()];
        let [one, other] = helped.map(|block| block.progress(Progress::Thread));
        [threads, virtual_ranks, one, other]
    }

    /// The streams of devices are those of ranks.
    #[test]
    fn a_rank_makes_its_copies_itself() {
        for block in everywhere(2) {
            let ended = block.run(|ctx| {
                let (other, copies) = (1 - ctx.rank(), || COPIES.with(Cell::get));
                for count in [10, 10_000] {
                    let before = copies();
                    let received = ctx.irecv(filled(9, count + 1, u32::MAX), other, 0)?;
                    let sent = ctx.isend(filled(ctx.rank() as u32, count, 0), other, 0)?;
                    let (got, status) = received.wait()?;
                    sent.wait()?;
                    assert_eq!((copies(), status.len()), (before + 2, count));
                    let theirs = [vec![other as u32; count], vec![9]].concat();
                    assert_eq!(got.elements, theirs);
                }
                Ok(())
            });
            ended.unwrap();
        }
    }

    /// One that cannot be written when its message is there: after it was asked for three times.
    #[test]
    fn a_buffer_that_panics_is_a_failure_of_its_receive() {
        for count in [10, 10_000] {
            for block in everywhere(1) {
                let run = |waits: bool| {
                    block.clone().run(|ctx| {
                        let received = ctx.irecv(filled(9, count, 3), 0, 0)?;
                        ctx.isend(vec![1u32; count], 0, 0)?.wait()?;
                        if waits {
                            received.wait()?;
                        }
                        Ok(())
                    })
                };
                for waits in [true, false] {
                    let error = run(waits).expect_err("it panics").to_string();
                    assert!(error.contains("its buffer panicked: it is worn out"), "{error}");
                }
            }
        }
    }
}
