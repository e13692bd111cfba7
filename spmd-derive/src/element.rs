//! `#[derive(Element)]`.

mod enumeration;
mod structure;

use proc_macro2::TokenStream;
use syn::{Data, DeriveInput, Result};

use crate::parse::refuse;

pub(crate) fn expand(input: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(input)?;
    match &input.data {
        Data::Struct(data) => structure::expand(&input, &data.fields),
        Data::Enum(data) => enumeration::expand(&input, data),
        Data::Union(_) => refuse(
            &input.ident,
            &format!(
                "#[derive(Element)] is for structs and enums; `{}` is a union, which may have \
                 uninitialised bytes",
                input.ident
            ),
        ),
    }
}

#[cfg(test)]
mod tests;
