//! Probes: what the next message is, before it is received.

use std::panic::Location;

use super::communicator::Comm;
use super::message::Message;
use crate::call::{Call, Form, Kind};
use crate::error::Result;
use crate::rank::{Source, Status, TagOrAny};
use crate::transport::message::MatchPattern;
use crate::transport::shared::layout::Agent;

/// What the next message is, before it is received (MPI 5.0 section 3.8). A probe leaves the message
/// to whoever receives first; a matched probe keeps it for its caller.
impl Comm {
    /// Waits for a message that fits and tells what it is, without receiving it (MPI 5.0 section
    /// 3.8.1).
    ///
    /// Errors: as [`Comm::recv`], but for length and type.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     if ctx.rank() == 0 {
    ///         return ctx.send(&[0u16; 5], 1, 9);
    ///     }
    ///     let next = ctx.probe(ANY, ANY)?;
    ///     assert_eq!((next.source(), next.tag(), next.len()), (0, 9, 5));
    ///     let mut buf = vec![0u16; next.len()];
    ///     ctx.recv(&mut buf, next.source(), next.tag())?;
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn probe(&self, source: impl Source, tag: impl TagOrAny) -> Result<Status> {
        let (source, tag) = (source.source(), tag.tag());
        let call = Call::new(Kind::Probe, Location::caller()).message(source, tag);
        let peek = |pattern: &MatchPattern| self.route.transport.peek(pattern);
        Ok(self.status(&self.await_one(&call, source, tag, peek)?))
    }

    /// Tells what the next message that fits is, if one has come; does not wait (MPI 5.0 section
    /// 3.8.1), and lets other ranks run if none has. A loop that polls with it is no wait, as it may be
    /// left at any time: a cycle of such loops is not found.
    ///
    /// Errors: as [`Comm::probe`]. But that it could come from nobody any more, as they have left,
    /// is an error for a rank alone that has polled for such a message for three seconds, most of
    /// its time within `iprobe`: one that looks between steps of its work gets `None`. So does
    /// one that may wait for something else, as its process has threads besides ranks, or another
    /// rank there may have a communicator of it. Where ranks of other processes could send it over
    /// MPI, it is an error some seconds later, and with `ANY` only if all other ranks of the world
    /// have left.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     if ctx.rank() == 0 {
    ///         return ctx.send(&[1], 1, 0);
    ///     }
    ///     while ctx.iprobe(0, 0)?.is_none() {
    ///         // something useful
    ///     }
    ///     ctx.recv(&mut [0], 0, 0)?;
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn iprobe(&self, source: impl Source, tag: impl TagOrAny) -> Result<Option<Status>> {
        let (source, tag) = (source.source(), tag.tag());
        let call = Call::new(Kind::Probe, Location::caller()).message(source, tag);
        let call = call.form(Form::Iprobe);
        let peek = |pattern: &MatchPattern| self.route.transport.peek(pattern);
        Ok(self.poll_for_one(&call, source, tag, peek)?.map(|envelope| self.status(&envelope)))
    }

    /// Waits for a message that fits, and sets it aside for who has got what this gives: no other
    /// receive or probe gets it, by whichever thread, or posted before (MPI 5.0 section 3.8.2).
    ///
    /// Errors: as [`Comm::probe`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     if ctx.rank() == 0 {
    ///         ctx.send(&[1u16, 2], 1, 9)?;
    ///         return ctx.send(&[2.5], 1, 9);
    ///     }
    ///     for _ in 0..2 {
    ///         let message = ctx.mprobe(ANY, 9)?;
    ///         match message.is::<u16>() {
    ///             true => assert_eq!(message.recv_vec::<u16>()?.0, [1, 2]),
    ///             false => assert_eq!(message.recv_vec::<f64>()?.0, [2.5]),
    ///         }
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn mprobe(&self, source: impl Source, tag: impl TagOrAny) -> Result<Message<'_>> {
        let (source, tag) = (source.source(), tag.tag());
        let call = Call::new(Kind::Probe, Location::caller()).message(source, tag);
        let call = call.form(Form::Mprobe);
        self.await_one(&call, source, tag, |pattern| self.set_aside(pattern))
    }

    /// Sets the next message that fits aside, as [`Comm::mprobe`], if one has come; does not wait,
    /// and lets other ranks run if none has, as [`Comm::iprobe`].
    ///
    /// Errors: as [`Comm::iprobe`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     if ctx.rank() == 0 {
    ///         return ctx.send(&[1; 100], 1, 0);
    ///     }
    ///     let message = loop {
    ///         match ctx.improbe(0, 0)? {
    ///             Some(message) => break message,
    ///             None => {} // something useful
    ///         }
    ///     };
    ///     let mut buf = vec![0; message.status().len()];
    ///     message.recv(&mut buf)?;
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn improbe(&self, source: impl Source, tag: impl TagOrAny) -> Result<Option<Message<'_>>> {
        let (source, tag) = (source.source(), tag.tag());
        let call = Call::new(Kind::Probe, Location::caller()).message(source, tag);
        let call = call.form(Form::Improbe);
        self.poll_for_one(&call, source, tag, |pattern| self.set_aside(pattern))
    }

    /// Waits until `look` finds something in a message that fits.
    fn await_one<T>(
        &self,
        call: &Call<'_>,
        source: Option<usize>,
        tag: Option<u32>,
        look: impl Fn(&MatchPattern) -> Result<Option<T>>,
    ) -> Result<T> {
        self.carried(call, || {
            let waiter = self.waiter(call)?;
            let pattern = self.pattern(call, source, tag)?;
            waiter.ended_by(Agent::MESSAGE);
            waiter.until_by(pattern.source, || look(&pattern).transpose())?
        })
    }

    /// What `look` finds now.
    fn poll_for_one<T>(
        &self,
        call: &Call<'_>,
        source: Option<usize>,
        tag: Option<u32>,
        look: impl Fn(&MatchPattern) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let begin = self.endpoint.hopeless.begins();
        let _entered = self.user.enter(call)?;
        self.check_stopped(call)?;
        let pattern = self.pattern(call, source, tag)?;
        match look(&pattern)? {
            Some(found) => {
                self.polled_well();
                Ok(Some(found))
            }
            None => self.polled_in_vain(begin, call, &pattern).map(|()| None),
        }
    }

    /// Sets the first message that fits aside, if one has come.
    fn set_aside(&self, pattern: &MatchPattern) -> Result<Option<Message<'_>>> {
        // Another agent of the rank may receive it meanwhile.
        if self.route.transport.peek(pattern)?.is_none() {
            return Ok(None);
        }
        let matched = self.endpoint.match_message(pattern)?;
        Ok(matched.map(|(number, envelope)| Message::new(self, number, envelope)))
    }
}
