use half::f16;
use spmd_core::op::{BitAnd, BitOr, BitXor, LogicalAnd, Max, Min, Op as Own, Operation, Prod, Sum};

use super::*;
use crate::provider::constants;

fn of<T: Element, O: Operation<T>>(op: O) -> Option<(Datatype, Op)> {
    native(&constants(), &T::DTYPE, &ErasedOp::new::<T, O>(&op))
}

macro_rules! integers {
    ($($type:ty: $signed:expr, $unsigned:expr;)*) => {$(
        for (found, op) in [
            (of::<$type, _>(Prod), constants().prod),
            (of::<$type, _>(BitAnd), constants().band),
            (of::<$type, _>(BitOr), constants().bor),
            (of::<$type, _>(BitXor), constants().bxor),
        ] {
            assert_eq!(found, Some(($unsigned, op)));
        }
        assert_eq!(of::<$type, _>(Min), Some(($signed, constants().min)));
        assert_eq!(of::<$type, _>(Max), Some(($signed, constants().max)));
        let sum = (size_of::<$type>() >= 4).then_some(($unsigned, constants().sum));
        assert_eq!(of::<$type, _>(Sum), sum);
        assert_eq!(of::<$type, _>(LogicalAnd), None);
    )*};
}

#[test]
fn integers_of_all_widths_are_native() {
    let (signed, unsigned) = (constants().signed, constants().unsigned);
    integers! {
        i8: signed[0], unsigned[0];
        i16: signed[1], unsigned[1];
        i32: signed[2], unsigned[2];
        i64: signed[3], unsigned[3];
        isize: signed[3], unsigned[3];
        u8: unsigned[0], unsigned[0];
        u16: unsigned[1], unsigned[1];
        u32: unsigned[2], unsigned[2];
        u64: unsigned[3], unsigned[3];
        usize: unsigned[3], unsigned[3];
    }
}

#[test]
fn floats_are_native_where_the_result_is_ours() {
    assert_eq!(of::<f32, _>(Sum), Some((constants().float, constants().sum)));
    assert_eq!(of::<f64, _>(Prod), Some((constants().double, constants().prod)));
    assert_eq!(of::<Complex<f32>, _>(Sum), Some((constants().float_complex, constants().sum)));
    assert_eq!(of::<Complex<f64>, _>(Sum), Some((constants().double_complex, constants().sum)));
    assert_eq!(of::<Complex<f64>, _>(Prod), None);
    assert_eq!(of::<f64, _>(Min), None);
    assert_eq!(of::<f32, _>(Max), None);
    assert_eq!(of::<f16, _>(Sum), None);
    // All processes of a call must find the same.
    let by_reference = &Sum;
    assert_eq!(of::<f32, _>(by_reference), of::<f32, _>(Sum));
}

#[test]
fn what_mpi_lacks_or_does_not_know_is_not_native() {
    assert_eq!(of::<u128, _>(Sum), None);
    assert_eq!(of::<bool, _>(BitAnd), None);
    assert_eq!(of::<[f64; 2], _>(Sum), None);
    assert_eq!(of::<f64, _>(Own::new(|a: f64, b: f64| a + b)), None);
}

#[test]
fn an_operation_of_the_same_name_is_not_taken_for_ours() {
    struct Impostor;

    impl Operation<f64> for Impostor {
        const NAME: &'static str = "Sum";

        fn combine(&self, left: f64, right: f64) -> f64 {
            left - right
        }
    }

    assert_eq!(of::<f64, _>(Impostor), None);
}
