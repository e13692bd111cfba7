use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

/// Elements of `f64` in one block of the fold.
const BLOCK: usize = 1024;

#[test]
fn split_is_the_largest_power_of_two_below() {
    for n in 2..200 {
        let split = canonical_split(n);
        assert!(split.is_power_of_two() && split < n && n <= 2 * split, "{n}");
    }
}

#[test]
fn order_depends_on_the_number_of_ranks_alone() {
    for ranks in (1..=18).chain([31, 32, 33, 64, 100]) {
        for count in [0, 1, 3, BLOCK, 2 * BLOCK + 7] {
            check_ranks::<f64>(
                &ErasedOp::new::<f64, _>(&Sum),
                &|a, b| a + b,
                ranks,
                count,
                Out::Apart,
            );
        }
    }
}

#[test]
fn out_may_be_any_one_input() {
    let average = |a: f32, b: f32| (a + 2.0 * b) / 3.0;
    let op = Op::new(average).non_commutative();
    for ranks in 1..=9 {
        for rank in 0..ranks {
            let op = &ErasedOp::new::<f32, _>(&op);
            check_ranks(op, &average, ranks, 2 * BLOCK + 5, Out::Input(rank));
        }
    }
}

#[test]
fn blocks_hold_at_least_one_large_element() {
    let first = |a: [u64; 2000], _: [u64; 2000]| a;
    let op = Op::new(first).non_commutative();
    check_ranks(&ErasedOp::new::<[u64; 2000], _>(&op), &first, 5, 3, Out::Input(2));
}

#[test]
fn scratch_is_reused() {
    let input = [1_u32; 5000];
    let mut out = [0_u32; 5000];
    let mut scratch = Vec::new();
    for expected in [16, 16, 5] {
        // SAFETY: all arrays hold 5000 values of `u32`, the type of the operation.
        unsafe {
            fold_ranks(
                &ErasedOp::new::<u32, _>(&Sum),
                4,
                out.as_mut_ptr().cast(),
                out.len(),
                expected,
                &mut |_| input.as_ptr().cast(),
                &mut scratch,
            );
        }
        assert!(out.iter().all(|&x| x as usize == expected));
        assert!(scratch.len() <= 5 * 8192);
    }
}

#[test]
fn at_most_two_ranks_take_no_scratch() {
    let (left, right, mut out) = ([1_u64, 2], [10_u64, 20], [0_u64; 2]);
    let mut scratch = Vec::new();
    for ranks in [1, 2] {
        // SAFETY: all arrays hold two values of `u64`, the type of the operation.
        unsafe {
            fold_ranks(
                &ErasedOp::new::<u64, _>(&Sum),
                8,
                out.as_mut_ptr().cast(),
                2,
                ranks,
                &mut |rank| [&left, &right][rank].as_ptr().cast(),
                &mut scratch,
            );
        }
    }
    assert_eq!((out, scratch.capacity()), ([11, 22], 0));
}

#[test]
fn no_ranks_are_refused() {
    let fold = || {
        // SAFETY: there are no elements, so no memory is touched.
        unsafe {
            let out = std::ptr::dangling_mut();
            let op = &ErasedOp::new::<u8, _>(&Sum);
            fold_ranks(op, 1, out, 0, 0, &mut |_| std::ptr::dangling(), &mut Vec::new());
        }
    };
    assert!(catch_unwind(fold).is_err());
}

#[test]
fn fold_allows_out_to_be_either_input() {
    let minus = Op::new(|a: i32, b: i32| a - b).non_commutative();
    let op = &ErasedOp::new::<i32, _>(&minus);
    let mut arrays = [[7, 8, 9], [1, 2, 3]];
    let [left, right] = arrays.each_mut().map(|array| array.as_mut_ptr().cast::<u8>());
    // SAFETY: the arrays hold three values of `i32`, and `out` is one of the inputs.
    unsafe {
        op.fold(left, left, right, 3);
        assert_eq!(left.cast::<[i32; 3]>().read(), [6, 6, 6]);
        op.fold(right, left, right, 3);
        assert_eq!(right.cast::<[i32; 3]>().read(), [5, 4, 3]);
        op.fold(left, right, right, 3);
        assert_eq!(left.cast::<[i32; 3]>().read(), [0; 3]);
        op.fold(right, right, right, 3);
        assert_eq!(right.cast::<[i32; 3]>().read(), [0; 3]);
    }
}

#[test]
fn a_panic_passes_through() {
    let op = Op::new(|a: u8, b: u8| a.checked_add(b).expect("too large"));
    let (left, right, mut out) = ([1_u8, 2, 255], [1_u8; 3], [0_u8; 3]);
    // SAFETY: the arrays hold three values of `u8`.
    let result = catch_unwind(AssertUnwindSafe(|| unsafe {
        let op = &ErasedOp::new::<u8, _>(&op);
        op.fold(out.as_mut_ptr(), left.as_ptr(), right.as_ptr(), 3);
    }));
    assert!(result.is_err());
    assert_eq!(out, [2, 3, 0]);
}

#[test]
fn erasure_keeps_the_properties() {
    let own = Op::new(|a: u8, _: u8| a).non_commutative();
    let (sum, own) = (ErasedOp::new::<u8, _>(&Sum), ErasedOp::new::<u8, _>(&own));
    assert_eq!((sum.name(), sum.commutative()), ("Sum", true));
    assert_eq!((own.name(), own.commutative()), ("user operation", false));
    assert_eq!(sum.id(), ErasedOp::new::<[f64; 2], _>(&&Sum).id());
    assert_ne!(sum.id(), own.id());
    let again = || ErasedOp::new::<f64, _>(&Op::new(|a: f64, b: f64| a + b)).id();
    assert_eq!(again(), again());
    assert_ne!(own.id(), again());
}
