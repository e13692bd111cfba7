//! Why a communicator stays with one thread, as the compiler tells it.

/// What no type is. An implementation of `Send` or `Sync` that asks for it applies to nothing, and so
/// says the same as none, but with this message; without one the compiler names each private field that
/// is not `Sync`. It stays private, so that no other crate can make such an implementation apply.
#[diagnostic::on_unimplemented(
    message = "a communicator stays with its thread: another thread or task needs one of its own, by `dup()`",
    label = "this would use it from another thread",
    note = "all ranks call `let own = ctx.dup()?;`, and the thread or task takes it: `move || own.barrier()`",
    note = "a thread that needs no communicator takes numbers: `let rank = ctx.rank();`"
)]
pub(crate) trait UsedByThreads {}
