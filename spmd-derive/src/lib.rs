//! The macros of `spmd`, documented where it re-exports them.

mod element;
mod operations;
mod parse;
mod test;

use operations::Derived;
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

/// Makes `Sum` an operation on a struct: the sum of each field.
#[proc_macro_derive(Sum, attributes(spmd))]
pub fn derive_sum(input: TokenStream) -> TokenStream {
    expanded(operations::expand(Derived::Sum, input.into()))
}

/// Makes `Prod` an operation on a struct: the product of each field.
#[proc_macro_derive(Prod, attributes(spmd))]
pub fn derive_prod(input: TokenStream) -> TokenStream {
    expanded(operations::expand(Derived::Prod, input.into()))
}

/// Makes `Min` an operation on a struct, of which it takes the least of each field, or on an enum
/// without fields.
#[proc_macro_derive(Min, attributes(spmd))]
pub fn derive_min(input: TokenStream) -> TokenStream {
    expanded(operations::expand(Derived::Min, input.into()))
}

/// Makes `Max` an operation on a struct, of which it takes the greatest of each field, or on an enum
/// without fields.
#[proc_macro_derive(Max, attributes(spmd))]
pub fn derive_max(input: TokenStream) -> TokenStream {
    expanded(operations::expand(Derived::Max, input.into()))
}

/// Makes of a function a test for each of some numbers of ranks in each of some places.
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, input: TokenStream) -> TokenStream {
    expanded(test::expand(arguments.into(), input.into()))
}

fn expanded(result: syn::Result<proc_macro2::TokenStream>) -> TokenStream {
    result.unwrap_or_else(Error::into_compile_error).into()
}
