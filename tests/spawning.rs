//! The way in which tests of this folder make worlds.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use spmd::prelude::*;

#[test]
fn every_kind_of_world() -> Result<()> {
    let entered = AtomicUsize::new(0);
    let world = support::World { segment: Some(256), ..Default::default() };
    world.everywhere("every_kind_of_world", &[1, 3], |ctx| {
        entered.fetch_add(1, Relaxed);
        assert_eq!(ctx.internals().segment(), 256);
        assert_eq!(ctx.allreduce_value(ctx.rank() + 1, Sum)?, ctx.size() * (ctx.size() + 1) / 2);
        Ok(())
    })?;
    let expected = if support::is_process_rank() { 1 } else { 2 * (1 + 3) };
    assert_eq!(entered.into_inner(), expected);
    Ok(())
}
