//! A struct is an element if its fields are, and lie without padding.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{DeriveInput, Fields, Result};

use crate::parse::{Repr, bounded, crate_path, members, parameters, refuse};

pub(super) fn expand(input: &DeriveInput, fields: &Fields) -> Result<TokenStream> {
    let name = &input.ident;
    if fields.is_empty() {
        let text = format!(
            "#[derive(Element)] is for types that hold a value; `{name}` is a struct without fields"
        );
        return refuse(name, &text);
    }
    if !Repr::of(input)?.fixed {
        let text = format!(
            "#[derive(Element)] needs a fixed layout: add #[repr(C)] (or #[repr(transparent)]) to `{name}`"
        );
        return refuse(name, &text);
    }
    let spmd = crate_path(input)?;
    let generics = bounded(input, fields, &spmd)?;
    let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
    let (this, turbofish) = (quote!(#name #ty_generics), ty_generics.as_turbofish());
    let described = members(fields).zip(fields).map(|(member, field)| {
        let text = member.to_token_stream().to_string();
        // Read from the struct as the compiler has it: an attribute behind this one may have
        // changed what is declared.
        quote_spanned! {field.ty.span()=>
            #spmd::DType::field(#text, ::core::mem::offset_of!(#this, #member), |it: #this| it.#member)
        }
    });
    let count = fields.len();
    let parameters = parameters(&input.generics, &spmd);
    let text = name.to_string();
    let padding = format!(
        "`{name}` has padding bytes, which #[derive(Element)] cannot send: order the fields from the \
         largest alignment to the smallest and fill the rest with a field such as `[u8; N]`"
    );
    let filled = quote! {
        ::core::assert!(
            ::core::mem::size_of::<#this>() == #spmd::DType::fields_size(&fields #turbofish ()),
            #padding
        );
    };
    // What has no parameters is looked at where it is declared, anything else where it is used.
    let (declared, used) = match parameters.is_empty() {
        true => (Some(quote!(const _: () = { #filled };)), None),
        false => (None, Some(filled)),
    };
    Ok(quote! {
        // A parameter may have bounds of its own in either place.
        #[allow(clippy::multiple_bound_locations)]
        const _: () = {
            const fn fields #impl_generics ()
            -> [(&'static ::core::primitive::str, ::core::primitive::usize, #spmd::DType); #count]
            #where_clause {
                [#(#described),*]
            }

            unsafe fn valid #impl_generics (
                values: *const ::core::primitive::u8,
                count: ::core::primitive::usize,
            ) -> ::core::primitive::bool #where_clause {
                let fields = const { &fields #turbofish () };
                // SAFETY: the same contract, and the fields lie within the struct.
                unsafe {
                    #spmd::DType::fields_valid(fields, ::core::mem::size_of::<#this>(), values, count)
                }
            }

            // SAFETY: the layout is fixed, the fields are elements (`DType::field` takes no others)
            // and fill the struct without padding, as the assertion shows; `valid` checks each of
            // them.
            #[automatically_derived]
            unsafe impl #impl_generics #spmd::Element for #this #where_clause {
                const DTYPE: #spmd::DType = {
                    #used
                    let name = const {
                        &#spmd::element::Name::of(
                            ::core::concat!(::core::module_path!(), "::", #text), &[#(#parameters),*],
                        )
                    };
                    #spmd::DType::structure::<Self>(name, &fields #turbofish (), valid #turbofish)
                };
            }

            #declared
        };
    })
}
