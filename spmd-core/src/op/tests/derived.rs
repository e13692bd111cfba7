//! Operations that are derived for structs and enums.

use super::*;
use crate::element::DType;

#[derive(Clone, Copy, Debug, PartialEq, Element, Sum, Prod, Min, Max)]
#[spmd(crate = crate)]
#[repr(C)]
struct Bounds<T, const N: usize> {
    at: [T; N],
    value: T,
}

#[derive(Clone, Copy, Debug, PartialEq, Element, Sum)]
#[spmd(crate = crate)]
#[repr(C, packed)]
struct Moments(u8, f64, Bounds<f32, 3>, [Bounds<u16, 1>; 2]);

#[derive(Clone, Copy, Debug, PartialEq, Element, Min, Max)]
#[spmd(crate = crate)]
#[repr(i8)]
enum State {
    Fine = 4,
    Lost = -5,
    Slow = 6,
}

impl<T: Sample, const N: usize> Sample for Bounds<T, N> {
    fn sample(random: &mut Rng) -> Self {
        Bounds { at: Sample::sample(random), value: T::sample(random) }
    }

    fn same(self, other: Self) -> bool {
        self.at.same(other.at) && self.value.same(other.value)
    }
}

impl Sample for Moments {
    fn sample(random: &mut Rng) -> Self {
        let (count, sum) = (Sample::sample(random), Sample::sample(random));
        Moments(count, sum, Sample::sample(random), Sample::sample(random))
    }

    fn same(self, other: Self) -> bool {
        let ends = { self.2 }.same(other.2) && { self.3 }.same(other.3);
        self.0 == other.0 && { self.1 }.same(other.1) && ends
    }
}

/// Each field by what the operation does to its type.
fn by_field<O>(op: O, left: Bounds<f32, 3>, right: Bounds<f32, 3>) -> Bounds<f32, 3>
where
    O: Operation<f32>,
{
    let at = std::array::from_fn(|axis| op.combine(left.at[axis], right.at[axis]));
    Bounds { at, value: op.combine(left.value, right.value) }
}

#[test]
fn fields_are_folded_by_themselves() {
    fn check<O: Operation<Bounds<f32, 3>> + Operation<f32> + Copy>(op: O) {
        for ranks in [1, 2, 3, 7] {
            let erased = ErasedOp::new::<Bounds<f32, 3>, O>(&op);
            let combine = |left, right| by_field(op, left, right);
            check_ranks(&erased, &combine, ranks, 61, Out::Apart);
            check_ranks(&erased, &combine, ranks, 20, Out::Input(ranks - 1));
        }
    }
    check(Sum);
    check(Prod);
    check(Min);
    check(Max);
}

#[test]
fn structs_and_arrays_are_fields() {
    let combine = |left: Moments, right: Moments| {
        let pair = |at: usize| Bounds {
            at: [{ left.3 }[at].at[0].wrapping_add({ right.3 }[at].at[0])],
            value: { left.3 }[at].value.wrapping_add({ right.3 }[at].value),
        };
        let bounds = by_field(Sum, left.2, right.2);
        Moments(left.0.wrapping_add(right.0), left.1 + right.1, bounds, [pair(0), pair(1)])
    };
    check_ranks(&ErasedOp::new::<Moments, _>(&Sum), &combine, 5, 61, Out::Apart);
}

#[test]
fn enums_are_compared_by_their_values() {
    use State::{Fine, Lost, Slow};
    assert_eq!((Min.combine(Fine, Lost), Max.combine(Fine, Lost)), (Lost, Fine));
    assert_eq!((Min.combine(Slow, Fine), Max.combine(Slow, Fine)), (Fine, Slow));
    assert_eq!(Max.combine([Fine, Slow], [Lost, Fine]), [Fine, Slow]);
}

/// No plane and no library takes them for its own operation of this name.
#[test]
fn they_are_operations_of_the_program() {
    fn erased<'a, T: Element, O: Operation<T>>(op: &'a O) -> (ErasedOp<'a>, DType) {
        (ErasedOp::new::<T, O>(op), T::DTYPE)
    }
    let (op, dtype) = erased::<Bounds<f32, 2>, _>(&Sum);
    let (other, other_dtype) = erased::<Bounds<i32, 2>, _>(&Sum);
    assert_eq!((op.name(), op.trusted(), op.commutative()), ("Sum", false, true));
    assert_ne!(op.id(), ErasedOp::id_of("Sum"));
    assert_eq!(op.id(), other.id());
    assert_ne!(dtype, other_dtype);
    assert_ne!(op.id(), erased::<Bounds<f32, 2>, _>(&Max).0.id());
}
