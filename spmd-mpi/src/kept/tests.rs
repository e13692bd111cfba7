use super::*;
use crate::provider::constants;

/// Different ones.
fn shapes(count: usize) -> Vec<Shape> {
    let memory = std::ptr::null_mut();
    let broadcast = |bytes| NativeCollective::Broadcast { root: 0, memory, bytes };
    let shape = |bytes| Shape::of(&constants(), broadcast(bytes)).map(|(shape, _)| shape);
    (1..=count).filter_map(shape).collect()
}

fn rests(shape: Shape) -> Kept {
    Kept { shape, request: Request::unset(), send: Vec::new(), recv: Vec::new() }
}

#[test]
fn no_more_requests_are_made_than_are_kept() {
    let mut table = Table::default();
    let shapes = shapes(KEPT + 2);
    for _ in 0..3 {
        for (made, shape) in shapes.iter().enumerate() {
            match table.take(*shape) {
                Some(kept) => table.resting.push(kept.unwrap_or_else(|| rests(*shape))),
                None => assert!(made >= KEPT),
            }
        }
        assert_eq!((table.made, table.resting.len()), (KEPT, KEPT));
    }
    let kept = |shape: &Shape| table.resting.iter().any(|kept| kept.shape == *shape);
    assert!(shapes[..KEPT].iter().all(kept) && !shapes[KEPT..].iter().any(kept));
}

#[test]
fn one_that_is_not_back_is_not_made_again_for_ever() {
    let mut table = Table::default();
    let shape = &shapes(1)[0];
    let made = (0..2 * KEPT).filter(|_| table.take(*shape).is_some()).count();
    assert_eq!(made, KEPT);
}
