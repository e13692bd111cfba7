//! Panics of ranks: what they said, where, and on which rank.

use std::any::Any;
use std::cell::RefCell;
use std::fmt::{Display, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::current;
use crate::fault::print;

thread_local! {
    /// Where the last panic of this thread began.
    static PANIC_PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
    /// What it said.
    static PANIC_TEXT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// From now on panics note their place, which their payload does not tell, and say which rank it is
/// if the name of its thread does not; then the hook that was there before goes on.
pub(crate) fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let place = info.location().map(|at| format!("{}:{}", at.file(), at.line()));
            // A thread that is being torn down has no such variable any more.
            let _ = PANIC_PLACE.try_with(|noted| noted.replace(place));
            let _ = PANIC_TEXT.try_with(|noted| noted.replace(text_of(info.payload())));
            if let Some(rank) = current::unnamed() {
                print(format_args!("rank {rank} panics:"));
            }
            before(info);
        }));
    });
}

/// What a panic said, as far as it is text, and where, if it was just caught on this thread.
pub fn panic_text(payload: &(dyn Any + Send)) -> String {
    with_place(text_of(payload))
}

/// What the panic said, and where, that unwinds this thread now.
pub(crate) fn panic_under_way() -> Option<String> {
    std::thread::panicking().then(|| with_place(PANIC_TEXT.with_borrow(String::clone)))
}

fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "(a panic without a text)".into())
}

fn with_place(text: String) -> String {
    match PANIC_PLACE.with_borrow(Option::clone) {
        Some(place) => format!("{text} at {place}"),
        None => text,
    }
}

/// What an error says. It may be the program's own, whose text may panic, or come to nothing: that
/// must not keep peers from hearing of the failure.
pub(crate) fn error_text(error: &dyn Display) -> String {
    let mut text = String::new();
    match catch_unwind(AssertUnwindSafe(|| write!(text, "{error}"))) {
        Ok(Ok(())) => return text,
        Ok(Err(_)) => {}
        Err(panic) => discard(panic),
    }
    "(an error whose text cannot be written)".into()
}

/// Drops what a panic carried, after its text was taken. If that panics as well, the rank has
/// failed by the first panic, wherever it runs.
pub fn discard(payload: Box<dyn Any + Send>) {
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(payload)));
    // To drop that one might panic again.
    dropped.unwrap_or_else(std::mem::forget);
}

/// Runs what may end a buffer of the program's own: a panic of that must not pass through a wait,
/// which may be for peers that use memory.
pub(crate) fn quietly(run: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        discard(payload);
    }
}
