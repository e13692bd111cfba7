use spmd_core::element::{DType, Element};
use spmd_core::op::{ErasedOp, Sum};
use spmd_core::transport::fabric::{BlockLayout, ProcessBlocks};

use super::*;
use crate::provider::constants;

fn broadcast(root: usize, bytes: usize) -> NativeCollective<'static> {
    NativeCollective::Broadcast { root, memory: std::ptr::null_mut(), bytes }
}

fn shape(step: NativeCollective<'_>) -> Option<Shape> {
    Shape::of(&constants(), step).map(|(shape, _)| shape)
}

#[test]
fn a_request_has_the_memory_that_its_process_uses() {
    let lengths = |step, rank| shape(step).map(|shape| shape.lengths(rank));
    assert_eq!(lengths(broadcast(1, 8), 1), Some((8, 0)));
    assert_eq!(lengths(broadcast(1, 8), 2), Some((0, 8)));
    let dtype: &DType = &f64::DTYPE;
    let op = &ErasedOp::new::<f64, _>(&Sum);
    let (send, recv) = (std::ptr::null(), std::ptr::null_mut());
    let fold = Fold { send, recv, count: 2, dtype, op };
    assert_eq!(lengths(NativeCollective::Allreduce(fold), 0), Some((16, 16)));
    assert_eq!(lengths(NativeCollective::Reduce { root: 2, fold }, 0), Some((16, 0)));
    assert_eq!(lengths(NativeCollective::Reduce { root: 2, fold }, 2), Some((16, 16)));
}

#[test]
fn steps_that_differ_have_other_shapes_or_none() {
    assert!(shape(broadcast(0, 8)) == shape(broadcast(0, 8)));
    assert!(shape(broadcast(0, 8)) != shape(broadcast(1, 8)));
    assert!(shape(broadcast(0, 8)) != shape(broadcast(0, 9)));
    let blocks = ProcessBlocks { memory: std::ptr::null_mut(), layout: BlockLayout::Equal(8) };
    assert!(shape(NativeCollective::Alltoall { send: blocks, recv: blocks }).is_none());
}

#[test]
fn large_steps_and_empty_ones_are_made_anew() {
    let is_small = |bytes| shape(broadcast(0, bytes)).is_some_and(|shape| shape.is_small());
    assert!(is_small(1) && is_small(MOST) && !is_small(MOST + 1) && !is_small(0));
}
