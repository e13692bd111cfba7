//! Every step, made and begun, against its result computed here.

use std::fmt::Debug;
use std::thread;

use num_complex::Complex;

use spmd_core::Result;
use spmd_core::element::Element;
use spmd_core::op::{BitXor, ErasedOp, Max, Min, Operation, Prod, Sum};
use spmd_core::transport::fabric::{
    BlockLayout, Fold, NativeCollective, ProcessBlocks, ProcessGroup,
};

use crate::{data, pattern};

/// All steps among `processes`.
pub fn all(processes: &dyn ProcessGroup) -> Result<()> {
    for begun in [false, true] {
        let world = World { processes, begun };
        world.make(NativeCollective::Barrier)?;
        for bytes in [0, 1, 8, 1000, 100_000] {
            for root in 0..processes.size() {
                world.broadcast(root, bytes)?;
                for equal in [false, true] {
                    world.gather(root, bytes, equal)?;
                    world.scatter(root, bytes, equal)?;
                }
            }
            for equal in [false, true] {
                world.alltoall(bytes, equal)?;
                world.allgather(bytes, equal, false)?;
                world.allgather(bytes, equal, true)?;
            }
        }
        for count in [0, 1, 2, 77, 20_000] {
            world.fold(Sum, count, |of, at| (of * 3 + at) as f64)?;
            world.fold(Sum, count, |of, at| (of + at) as f32)?;
            world.fold(Prod, count, |of, at| (of + 1 + at % 3) as f64)?;
            world.fold(Sum, count, |of, at| Complex::new(of as f64, at as f64))?;
            world.fold(Sum, count, |of, at| (of * 200 + at) as i8)?;
            world.fold(Sum, count, |of, at| i64::MAX - (of * at) as i64)?;
            world.fold(Prod, count, |of, at| (of * 77 + at) as u32)?;
            world.fold(Min, count, |of, at| at as i64 - (of * of) as i64)?;
            world.fold(Max, count, |of, at| at as i16 - 3 * of as i16)?;
            world.fold(Max, count, |of, at| usize::MAX - (of + at) % 5)?;
            world.fold(BitXor, count, |of, at| (of * 99 + at) as u8)?;
        }
    }
    Ok(())
}

struct World<'a> {
    processes: &'a dyn ProcessGroup,
    begun: bool,
}

/// Blocks with their lengths and places.
struct Blocks {
    memory: Vec<u8>,
    bytes: Vec<usize>,
    displacements: Vec<usize>,
    equal: bool,
}

impl Blocks {
    /// Empty blocks of these lengths: equal and one after the other, or in reverse order with gaps.
    fn new(bytes: Vec<usize>, equal: bool) -> Blocks {
        let (mut displacements, mut end) = (vec![0; bytes.len()], 0);
        for at in 0..bytes.len() {
            let block = if equal { at } else { bytes.len() - 1 - at };
            displacements[block] = end;
            end += bytes[block] + if equal { 0 } else { 3 };
        }
        Blocks { memory: vec![0xEE; end], bytes, displacements, equal }
    }

    fn parts(&mut self) -> ProcessBlocks<'_> {
        let layout = match self.equal {
            true => BlockLayout::Equal(self.bytes[0]),
            false => BlockLayout::Listed { bytes: &self.bytes, displacements: &self.displacements },
        };
        ProcessBlocks { memory: self.memory.as_mut_ptr(), layout }
    }

    fn block(&mut self, at: usize) -> &mut [u8] {
        &mut self.memory[self.displacements[at]..][..self.bytes[at]]
    }

    fn fill(&mut self, number: impl Fn(usize) -> usize) {
        for at in 0..self.bytes.len() {
            let number = number(at);
            for (byte, value) in self.block(at).iter_mut().enumerate() {
                *value = pattern(number, byte);
            }
        }
    }

    fn check(&mut self, what: &str, number: impl Fn(usize) -> usize) {
        for at in 0..self.bytes.len() {
            let expected = data(number(at), self.bytes[at]);
            assert!(*self.block(at) == expected, "{what}: block {at}");
        }
    }
}

impl World<'_> {
    fn rank(&self) -> usize {
        self.processes.rank()
    }

    fn size(&self) -> usize {
        self.processes.size()
    }

    fn make(&self, step: NativeCollective<'_>) -> Result<()> {
        // SAFETY: the callers' steps name memory of their own, and wait here.
        unsafe {
            if !self.begun {
                return self.processes.run(step);
            }
            let mut requests = self.processes.start(step)?;
            while !requests.test()? {
                thread::yield_now();
            }
        }
        Ok(())
    }

    /// The length of a block between two processes.
    fn length(&self, from: usize, to: usize, bytes: usize, equal: bool) -> usize {
        if equal { bytes } else { bytes * ((from * 2 + to) % 3) + from }
    }

    fn broadcast(&self, root: usize, bytes: usize) -> Result<()> {
        let mut memory = if self.rank() == root { data(root, bytes) } else { vec![0; bytes] };
        self.make(NativeCollective::Broadcast { root, memory: memory.as_mut_ptr(), bytes })?;
        assert_eq!(memory, data(root, bytes));
        Ok(())
    }

    fn gather(&self, root: usize, bytes: usize, equal: bool) -> Result<()> {
        let length = |of| self.length(of, root, bytes, equal);
        let send = data(self.rank(), length(self.rank()));
        let mut all = Blocks::new((0..self.size()).map(length).collect(), equal);
        let recv = if self.rank() == root { all.parts() } else { ProcessBlocks::elsewhere(equal) };
        self.make(NativeCollective::Gather { root, send: (send.as_ptr(), send.len()), recv })?;
        if self.rank() == root {
            all.check("gather", |of| of);
        }
        Ok(())
    }

    fn scatter(&self, root: usize, bytes: usize, equal: bool) -> Result<()> {
        let length = |of| self.length(of, root, bytes, equal);
        let mut all = Blocks::new((0..self.size()).map(length).collect(), equal);
        all.fill(|of| of + root);
        let mut into = vec![0; length(self.rank())];
        let recv = (into.as_mut_ptr(), into.len());
        let send = if self.rank() == root { all.parts() } else { ProcessBlocks::elsewhere(equal) };
        self.make(NativeCollective::Scatter { root, send, recv })?;
        assert_eq!(into, data(self.rank() + root, into.len()));
        Ok(())
    }

    fn allgather(&self, bytes: usize, equal: bool, in_place: bool) -> Result<()> {
        let length = |of| self.length(of, 0, bytes, equal);
        let send = data(self.rank(), length(self.rank()));
        let mut all = Blocks::new((0..self.size()).map(length).collect(), equal);
        let mut source = send.as_ptr();
        if in_place {
            all.block(self.rank()).copy_from_slice(&send);
            source = all.block(self.rank()).as_ptr();
        }
        self.make(NativeCollective::Allgather { send: (source, send.len()), recv: all.parts() })?;
        all.check("allgather", |of| of);
        Ok(())
    }

    fn alltoall(&self, bytes: usize, equal: bool) -> Result<()> {
        let (me, size) = (self.rank(), self.size());
        let number = |from, to| from * 10 + to;
        let length = |from, to| self.length(from, to, bytes, equal);
        let mut send = Blocks::new((0..size).map(|to| length(me, to)).collect(), equal);
        let mut recv = Blocks::new((0..size).map(|from| length(from, me)).collect(), equal);
        send.fill(|to| number(me, to));
        self.make(NativeCollective::Alltoall { send: send.parts(), recv: recv.parts() })?;
        recv.check("alltoall", |from| number(from, me));
        Ok(())
    }

    /// All folds of `count` elements, out of place and in place.
    fn fold<T, O>(&self, op: O, count: usize, value: impl Fn(usize, usize) -> T) -> Result<()>
    where
        T: Element + PartialEq + Debug,
        O: Operation<T>,
    {
        let (me, size) = (self.rank(), self.size());
        let erased = ErasedOp::new::<T, O>(&op);
        assert!(self.processes.folds(&T::DTYPE, &erased), "{} of {}", O::NAME, T::DTYPE);
        let of = |rank| (0..count).map(|at| value(rank, at)).collect::<Vec<T>>();
        // The values are such that the order is of no consequence.
        let over = |ranks: usize| {
            (1..ranks).fold(of(0), |sum, rank| {
                sum.iter().zip(of(rank)).map(|(left, right)| op.combine(*left, right)).collect()
            })
        };
        let total = over(size);
        // Some get nothing, the last one all that is left.
        let mut counts: Vec<usize> = (0..size).map(|of| count / (size + 1) * (of % 2)).collect();
        counts[size - 1] = count - counts[..size - 1].iter().sum::<usize>();
        let first = counts[..me].iter().sum::<usize>();
        let expect = |what: &str, found: &[T], expected: &[T]| {
            assert!(found == expected, "{what} {} of {} {}", O::NAME, count, T::DTYPE);
        };
        for in_place in [false, true] {
            let make = |step: &dyn Fn(_) -> _| -> Result<Vec<T>> {
                let send = of(me);
                let mut recv = if in_place { send.clone() } else { vec![value(0, 0); count] };
                let into = recv.as_mut_ptr().cast::<u8>();
                let from = if in_place { into.cast_const() } else { send.as_ptr().cast() };
                let (dtype, op) = (&T::DTYPE, &erased);
                self.make(step(Fold { send: from, recv: into, count, dtype, op }))?;
                Ok(recv)
            };
            expect("allreduce", &make(&|fold| NativeCollective::Allreduce(fold))?, &total);
            expect("scan", &make(&|fold| NativeCollective::Scan(fold))?, &over(me + 1));
            let before = make(&|fold| NativeCollective::Exscan(fold))?;
            match me {
                0 if in_place => expect("exscan", &before, &of(0)),
                0 => expect("exscan", &before, &vec![value(0, 0); count]),
                _ => expect("exscan", &before, &over(me)),
            }
            for root in 0..size {
                let reduced = make(&|fold| NativeCollective::Reduce { root, fold })?;
                match me == root {
                    true => expect("reduce", &reduced, &total),
                    false if in_place => expect("reduce", &reduced, &of(me)),
                    false => expect("reduce", &reduced, &vec![value(0, 0); count]),
                }
            }
            let mine = make(&|fold| NativeCollective::ReduceScatter { fold, counts: &counts })?;
            expect("reduce_scatter", &mine[..counts[me]], &total[first..][..counts[me]]);
        }
        Ok(())
    }
}
