//! Calls of random programs that go on while others are made: started, in a scope, persistent.

use crate::prelude::*;
use spmd_core::{Buffer, BufferMut};

use super::{check, data};

/// A collective with a send and a receive buffer, of `count` elements of a rank or of a block.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub kind: usize,
    pub count: usize,
    pub root: usize,
}

/// This rank, and how many there are.
type Place = (usize, usize);

fn place(comm: &Comm) -> Place {
    (comm.rank(), comm.size())
}

impl Shape {
    fn kind(&self) -> usize {
        self.kind % 7
    }

    fn root(&self, (_, n): Place) -> usize {
        self.root % n
    }

    /// What a rank contributes in a call with this seed.
    fn send(&self, (_, n): Place, seed: u32, rank: usize) -> Vec<u32> {
        data(seed, rank, if [3, 4].contains(&self.kind()) { n * self.count } else { self.count })
    }

    fn room(&self, (_, n): Place) -> Vec<u32> {
        vec![0; if [2, 3, 5].contains(&self.kind()) { n * self.count } else { self.count }]
    }

    /// What this rank then has: by plain loops.
    fn expected(&self, place: Place, seed: u32) -> Vec<u32> {
        let (me, n) = place;
        let all: Vec<Vec<u32>> = (0..n).map(|rank| self.send(place, seed, rank)).collect();
        let block = |from: &Vec<u32>| from[me * self.count..][..self.count].to_vec();
        let fold = |ranks: usize, op: fn(u32, u32) -> u32| -> Vec<u32> {
            let at = |index: usize| all[..ranks].iter().map(|one| one[index]).reduce(op);
            (0..self.count).map(|index| at(index).unwrap_or(0)).collect()
        };
        match self.kind() {
            0 => fold(n, u32::wrapping_add),
            1 => fold(me + 1, u32::max),
            2 => all.concat(),
            3 => all.iter().flat_map(block).collect(),
            4 => block(&all[self.root(place)]),
            _ if me != self.root(place) => self.room(place),
            5 => all.concat(),
            _ => fold(n, |a, b| a ^ b),
        }
    }

    /// Starts it, on a communicator or in a scope.
    fn start<'a, A, S, R>(
        &self,
        at: &A,
        place: Place,
        (send, recv): (S, R),
    ) -> Result<Request<(S, R)>>
    where
        A: AllreduceRequests<'a> + ScanRequests<'a> + AllgatherRequests<'a> + AlltoallRequests<'a>,
        A: ScatterRequests<'a> + GatherRequests<'a> + ReduceRequests<'a>,
        S: Buffer<Elem = u32> + Send + 'a,
        R: BufferMut<Elem = u32> + Send + 'a,
    {
        let root = self.root(place);
        match self.kind() {
            0 => at.allreduce(send, recv, Sum),
            1 => at.scan(send, recv, Max),
            2 => at.allgather(send, recv),
            3 => at.alltoall(send, recv),
            4 => at.scatter(send, recv, root),
            5 => at.gather(send, recv, root),
            _ => at.reduce(send, recv, BitXor, root),
        }
    }

    fn init(&self, comm: &Comm) -> Result<Persistent<(Vec<u32>, Vec<u32>)>> {
        let place = place(comm);
        let (send, recv, root) = (self.send(place, 0, 0), self.room(place), self.root(place));
        match self.kind() {
            0 => comm.allreduce_init(send, recv, Sum),
            1 => comm.scan_init(send, recv, Max),
            2 => comm.allgather_init(send, recv),
            3 => comm.alltoall_init(send, recv),
            4 => comm.scatter_init(send, recv, root),
            5 => comm.gather_init(send, recv, root),
            _ => comm.reduce_init(send, recv, BitXor, root),
        }
    }
}

/// What is left to do with a call that goes on: to wait for it and look at what it gives.
pub(super) type End = Box<dyn FnOnce() -> Result<()>>;

/// Starts a collective that owns its buffers.
pub(super) fn started(comm: &Comm, shape: Shape, seed: u32) -> Result<End> {
    let place = place(comm);
    let buffers = (shape.send(place, seed, place.0), shape.room(place));
    let request = shape.start(&comm.internals(), place, buffers)?;
    Ok(Box::new(move || {
        let (_, got) = request.wait()?;
        check(got == shape.expected(place, seed), "a started call", &shape)
    }))
}

/// Everybody sends to the rank this far ahead, and receives.
pub(super) fn posted(comm: &Comm, (by, count): (usize, usize), tag: u32) -> Result<[End; 2]> {
    let ((me, n), mine) = (place(comm), data(tag, comm.rank(), count));
    let (to, from) = ((me + by) % n, (me + n - by % n) % n);
    let sent = match count % 5 {
        0 => comm.issend(mine, to, tag)?,
        _ => comm.isend(mine, to, tag)?,
    };
    let received = comm.irecv(vec![0; count], from, tag)?;
    Ok([
        Box::new(move || sent.wait().map(drop)),
        Box::new(move || {
            let (got, status) = received.wait()?;
            let right = status.len() == count && got == data(tag, from, count);
            check(right, "a posted receive", &(from, count, tag))
        }),
    ])
}

/// Collectives and a message of borrowed buffers, beside a call that is not started.
pub(super) fn scoped(comm: &Comm, shapes: &[Shape], tag: u32) -> Result<()> {
    let (place, mine) = (place(comm), [tag, comm.rank() as u32]);
    let (me, n) = place;
    let seed = |number: usize| tag + ((number as u32) << 16);
    let send = |(number, shape): (usize, &Shape)| shape.send(place, seed(number), me);
    let sends: Vec<Vec<u32>> = shapes.iter().enumerate().map(send).collect();
    let mut rooms: Vec<Vec<u32>> = shapes.iter().map(|shape| shape.room(place)).collect();
    let mut theirs = [0; 2];
    comm.requests(|requests| {
        let mut kept = Vec::new();
        for ((shape, send), room) in shapes.iter().zip(&sends).zip(&mut rooms) {
            kept.push(shape.start(requests, place, (send, room))?);
        }
        requests.isend(&mine, (me + 1) % n, tag)?;
        requests.irecv(&mut theirs, (me + n - 1) % n, tag)?;
        comm.barrier()?;
        // The others end with the scope.
        kept.pop().map_or(Ok(()), |last| last.wait().map(drop))
    })?;
    check(theirs == [tag, ((me + n - 1) % n) as u32], "a message in a scope", &tag)?;
    for (number, (shape, room)) in shapes.iter().zip(rooms).enumerate() {
        let right = room == shape.expected(place, seed(number));
        check(right, "a call in a scope", &(number, shape))?;
    }
    Ok(())
}

/// A persistent call, or two that send and receive.
pub(super) struct Repeated {
    place: Place,
    what: What,
    /// That of the call that goes on.
    seed: Option<u32>,
}

enum What {
    Collective(Shape, Box<Persistent<(Vec<u32>, Vec<u32>)>>),
    /// A send, and a receive from this rank.
    Messages(Box<[Persistent<Vec<u32>>; 2]>, usize),
}

impl Repeated {
    pub(super) fn collective(comm: &Comm, shape: Shape) -> Result<Repeated> {
        let what = What::Collective(shape, Box::new(shape.init(comm)?));
        Ok(Repeated { place: place(comm), what, seed: None })
    }

    /// Everybody sends to the rank this far ahead, and receives.
    pub(super) fn messages(comm: &Comm, (by, count): (usize, usize), tag: u32) -> Result<Repeated> {
        let (me, n) = place(comm);
        let (to, from) = ((me + by) % n, (me + n - by % n) % n);
        let send = match count % 5 {
            0 => comm.ssend_init(vec![0; count], to, tag)?,
            _ => comm.send_init(vec![0; count], to, tag)?,
        };
        let receive = comm.recv_init(vec![0; count], from, tag)?;
        let what = What::Messages(Box::new([send, receive]), from);
        Ok(Repeated { place: (me, n), what, seed: None })
    }

    pub(super) fn start(&mut self, seed: u32) -> Result<()> {
        self.seed = Some(seed);
        match &mut self.what {
            What::Collective(shape, call) => {
                *call.send_mut()? = shape.send(self.place, seed, self.place.0);
                call.start()
            }
            What::Messages(both, _) => {
                let [send, receive] = &mut **both;
                let count = send.get()?.len();
                *send.get_mut()? = data(seed, self.place.0, count);
                send.start()?;
                receive.start()
            }
        }
    }

    /// Waits for it, if it goes on.
    pub(super) fn end(&mut self) -> Result<()> {
        let Some(seed) = self.seed.take() else { return Ok(()) };
        match &mut self.what {
            What::Collective(shape, call) => {
                call.wait()?;
                let right = *call.recv()? == shape.expected(self.place, seed);
                check(right, "a persistent call", shape)
            }
            What::Messages(both, from) => {
                let [send, receive] = &mut **both;
                receive.wait()?;
                send.wait()?;
                let right = *receive.get()? == data(seed, *from, send.get()?.len());
                let from = receive.status().map(|status| status.source()) == Some(*from);
                check(right && from, "a persistent receive", &seed)
            }
        }
    }
}
