//! The macros of `spmd`, documented where it re-exports them.

mod element;
mod parse;

use proc_macro::TokenStream;
use syn::Error;

/// Makes a struct without padding whose fields are all elements, or an enum without fields, an
/// `Element`.
///
/// A struct whose layout is not fixed does not compile:
///
/// ```compile_fail
/// # use spmd_derive::Element;
/// #[derive(Clone, Copy, Element)]
/// struct Reordered {
///     position: [f64; 3],
/// }
/// ```
#[proc_macro_derive(Element, attributes(spmd))]
pub fn derive_element(input: TokenStream) -> TokenStream {
    expanded(element::expand(input.into()))
}

fn expanded(result: syn::Result<proc_macro2::TokenStream>) -> TokenStream {
    result.unwrap_or_else(Error::into_compile_error).into()
}
