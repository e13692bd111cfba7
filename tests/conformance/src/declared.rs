//! Element types that a program declares with type parameters, or as an enum, and derived operations.

use spmd_core::{Element, Max, Min, Prod, Sum};

use crate::element::Sample;

/// A struct whose size and alignment are those of its parameter, several times.
#[derive(Clone, Copy, Element, Sum, Prod, Min, Max)]
#[spmd(crate = spmd_core)]
#[repr(C)]
pub struct Moments<T> {
    pub sums: [T; 2],
    pub last: T,
}

impl<T: Sample> Sample for Moments<T> {
    fn made(random: u64) -> Moments<T> {
        Moments { sums: Sample::made(random), last: T::made(random.rotate_left(40)) }
    }

    fn without_payloads(self) -> Moments<T> {
        Moments { sums: self.sums.without_payloads(), last: self.last.without_payloads() }
    }
}

/// A value of few that a byte has: what comes from another process is looked at.
#[derive(Clone, Copy, Element, Min, Max)]
#[spmd(crate = spmd_core)]
#[repr(u8)]
pub enum Phase {
    Solid = 3,
    Liquid = 0,
    Gas = 200,
}

impl Sample for Phase {
    fn made(random: u64) -> Phase {
        [Phase::Solid, Phase::Liquid, Phase::Gas][(random % 3) as usize]
    }
}
