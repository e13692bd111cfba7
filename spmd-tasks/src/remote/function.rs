//! Functions that ranks tell each other to run, by their names.

use std::any::type_name;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Serialize;
use serde::de::DeserializeOwned;
use spmd_core::{Error, Result};

/// A function that a rank may be told to run: a `fn` with up to six arguments, which travel as a tuple, that
/// returns a [`Result`]. `A` is that tuple, and `R` what is in the result; both can be serialized (serde).
///
/// [`remote!`](crate::remote!) makes it known.
pub trait RemoteFn<A, R>: Copy + Send + 'static {
    /// Calls it.
    ///
    /// Errors: its own.
    fn call(self, args: A) -> Result<R>;
}

macro_rules! functions {
    ($($arg:ident $value:ident),*) => {
        impl<F, $($arg,)* R> RemoteFn<($($arg,)*), R> for F
        where
            F: Fn($($arg),*) -> Result<R> + Copy + Send + 'static,
        {
            fn call(self, ($($value,)*): ($($arg,)*)) -> Result<R> {
                self($($value),*)
            }
        }
    };
}

functions!();
functions!(A a);
functions!(A a, B b);
functions!(A a, B b, C c);
functions!(A a, B b, C c, D d);
functions!(A a, B b, C c, D d, E e);
functions!(A a, B b, C c, D d, E e, G g);

/// A function that all ranks know.
#[derive(Debug)]
pub struct Known {
    name: fn() -> &'static str,
    run: Run,
}

/// [`run`] of a function.
pub(crate) type Run = fn(&[u8]) -> Result<Vec<u8>>;

inventory::collect!(Known);

impl Known {
    #[expect(missing_docs, reason = "hidden: `remote!` alone calls it")]
    pub const fn new(name: fn() -> &'static str, run: Run) -> Known {
        Known { name, run }
    }
}

/// What a function is called.
pub fn name_of<F: RemoteFn<A, R>, A, R>(_: F) -> &'static str {
    type_name::<F>()
}

/// Runs a function with the bytes of its arguments, and gives those of its value.
///
/// Errors: the function's; there are other bytes than its arguments have.
pub fn run<F, A, R>(function: F, args: &[u8]) -> Result<Vec<u8>>
where
    F: RemoteFn<A, R>,
    A: DeserializeOwned,
    R: Serialize,
{
    to_bytes(&function.call(from_bytes(args)?)?)
}

/// Errors: it cannot be serialized.
pub(crate) fn to_bytes<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|why| Error::argument(format!("to serialize: {why}")))
}

/// Errors: there is no such value in these bytes.
pub(crate) fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    postcard::from_bytes(bytes).map_err(|why| Error::argument(format!("to deserialize: {why}")))
}

/// The function of this name, if `remote!` has made it known.
pub(crate) fn known(name: &str) -> Option<Run> {
    static KNOWN: OnceLock<BTreeMap<&'static str, Run>> = OnceLock::new();
    let all = || inventory::iter::<Known>().map(|known| ((known.name)(), known.run)).collect();
    KNOWN.get_or_init(all).get(name).copied()
}
