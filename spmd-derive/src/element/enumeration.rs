//! An enum is an element if an integer says which variant it is, and nothing else belongs to one.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DataEnum, DeriveInput, Error, Fields, Result};

use crate::parse::{Repr, crate_path, refuse};

pub(super) fn expand(input: &DeriveInput, data: &DataEnum) -> Result<TokenStream> {
    let name = &input.ident;
    if let Some(variant) = data.variants.iter().find(|it| !matches!(it.fields, Fields::Unit)) {
        let text = format!(
            "#[derive(Element)] is for enums without fields; `{name}::{}` has some, whose bytes other \
             variants leave uninitialised: send a struct of a fieldless enum and the values, or any \
             serde type by the `_object` calls",
            variant.ident
        );
        return Err(Error::new_spanned(&variant.fields, text));
    }
    if data.variants.is_empty() {
        return refuse(name, &format!("`{name}` has no variant, so that no rank can send one"));
    }
    let Some(integer) = Repr::of(input)?.integer else {
        let text = format!(
            "#[derive(Element)] needs a fixed representation: add #[repr(u8)], or another integer, to \
             `{name}`"
        );
        return refuse(name, &text);
    };
    let spmd = crate_path(input)?;
    let integer = quote!(::core::primitive::#integer);
    let variants: Vec<_> = data.variants.iter().map(|it| &it.ident).collect();
    let texts = variants.iter().map(|it| it.to_string());
    let text = name.to_string();
    Ok(quote! {
        const _: () = {
            // Asked of the enum as the compiler has it: an attribute behind this one may have
            // changed what is declared.
            #(
                // SAFETY: the compiler refuses it where the sizes differ. All bytes of an integer
                // are values.
                ::core::assert!(unsafe {
                    ::core::mem::transmute::<#name, #integer>(#name::#variants)
                } == #name::#variants as #integer);
            )*

            unsafe fn valid(
                values: *const ::core::primitive::u8,
                count: ::core::primitive::usize,
            ) -> ::core::primitive::bool {
                let values = values.cast::<#integer>();
                let mut valid = true;
                let mut index = 0;
                while index < count {
                    // SAFETY: value `index` of `count` is readable by the caller's contract, and
                    // `read_unaligned` needs no alignment.
                    let value = unsafe { values.add(index).read_unaligned() };
                    valid &= #(value == #name::#variants as #integer)||*;
                    index += 1;
                }
                valid
            }

            // SAFETY: it is an integer of which `valid` accepts the values of variants alone, as the
            // assertions show: no padding, no pointers, not of size zero.
            #[automatically_derived]
            unsafe impl #spmd::Element for #name {
                const DTYPE: #spmd::DType = #spmd::DType::enumeration::<Self>(
                    ::core::concat!(::core::module_path!(), "::", #text),
                    &[#((#texts, #name::#variants as ::core::primitive::i128)),*],
                    valid,
                );
            }
        };
    })
}
