//! `#[derive(Element)]`, documented where `spmd` re-exports it next to the trait.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, Index, Member, Path, Result, parse_quote};

/// Makes a `#[repr(C)]` struct without padding, whose fields are all elements, an `Element`.
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
pub fn derive_element(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand(input.into()).unwrap_or_else(Error::into_compile_error).into()
}

fn expand(input: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(input)?;
    let name = &input.ident;
    let fields = fields_of(&input)?;
    if !input.generics.params.is_empty() {
        let text = "#[derive(Element)] needs one fixed layout: generic parameters are not supported, \
                    derive it for a struct with concrete field types";
        return Err(Error::new_spanned(&input.generics, text));
    }
    if !has_fixed_layout(&input)? {
        let text = format!(
            "#[derive(Element)] needs a fixed layout: add #[repr(C)] (or #[repr(transparent)]) to `{name}`"
        );
        return Err(Error::new_spanned(name, text));
    }
    let spmd = crate_path(&input)?;

    let described = fields.iter().enumerate().map(|(index, field)| {
        let member = field.ident.clone().map_or(Member::Unnamed(Index::from(index)), Member::Named);
        let text = member.to_token_stream().to_string();
        // Read from the struct as the compiler has it: an attribute behind this one may have
        // changed what is declared.
        quote_spanned! {field.ty.span()=>
            #spmd::DType::field(#text, ::core::mem::offset_of!(#name, #member), |it: #name| it.#member)
        }
    });
    let count = fields.len();
    let text = name.to_string();
    let padding = format!(
        "`{name}` has padding bytes, which #[derive(Element)] cannot send: order the fields from the \
         largest alignment to the smallest and fill the rest with a field such as `[u8; N]`"
    );
    Ok(quote! {
        const _: () = {
            const FIELDS: [(&'static ::core::primitive::str, ::core::primitive::usize, #spmd::DType); #count] = [#(#described),*];

            ::core::assert!(::core::mem::size_of::<#name>() == #spmd::DType::fields_size(&FIELDS), #padding);

            unsafe fn valid(
                values: *const ::core::primitive::u8,
                count: ::core::primitive::usize,
            ) -> ::core::primitive::bool {
                // SAFETY: the same contract, and `FIELDS` lie within the struct.
                unsafe {
                    #spmd::DType::fields_valid(&FIELDS, ::core::mem::size_of::<#name>(), values, count)
                }
            }

            // SAFETY: the layout is fixed, the fields are elements (`DType::field` takes no others)
            // and fill the struct without padding, as the assertion shows; `valid` checks each of
            // them.
            #[automatically_derived]
            unsafe impl #spmd::Element for #name {
                const DTYPE: #spmd::DType = #spmd::DType::structure::<#name>(
                    ::core::concat!(::core::module_path!(), "::", #text), &FIELDS, valid,
                );
            }
        };
    })
}

/// The fields of the struct; an error for anything but a struct with fields.
fn fields_of(input: &DeriveInput) -> Result<&Fields> {
    let kind = match &input.data {
        Data::Struct(data) if data.fields.is_empty() => "a struct without fields",
        Data::Struct(data) => return Ok(&data.fields),
        Data::Enum(_) => "an enum, which has bit patterns that are no value",
        Data::Union(_) => "a union, which may have uninitialised bytes",
    };
    let text =
        format!("#[derive(Element)] is for structs with fields; `{}` is {kind}", input.ident);
    Err(Error::new_spanned(&input.ident, text))
}

fn has_fixed_layout(input: &DeriveInput) -> Result<bool> {
    let mut fixed = false;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("repr")) {
        attribute.parse_nested_meta(|meta| {
            fixed |= meta.path.is_ident("C") || meta.path.is_ident("transparent");
            if meta.input.peek(syn::token::Paren) {
                let argument;
                syn::parenthesized!(argument in meta.input);
                argument.parse::<TokenStream>()?;
            }
            Ok(())
        })?;
    }
    Ok(fixed)
}

/// The crate in which the generated code finds `Element` and `DType`.
fn crate_path(input: &DeriveInput) -> Result<Path> {
    let mut path = parse_quote!(::spmd);
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("spmd")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("expected `crate = path`"));
            }
            path = meta.value()?.call(Path::parse_mod_style)?;
            Ok(())
        })?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(input: TokenStream) -> String {
        expand(input).expect_err("must be refused").to_string()
    }

    #[test]
    fn refuses_what_has_no_fixed_layout() {
        assert!(
            message(quote!(
                struct Plain {
                    x: u8,
                }
            ))
            .contains("add #[repr(C)]")
        );
        let packed = quote!(
            #[repr(packed(2), align(4))]
            struct Packed {
                x: u8,
            }
        );
        assert!(message(packed).contains("add #[repr(C)]"));
        assert!(
            message(quote!(
                #[repr(C)]
                struct Wrap<T> {
                    x: T,
                }
            ))
            .contains("generic")
        );
    }

    #[test]
    fn refuses_what_is_no_struct_with_fields() {
        assert!(
            message(quote!(
                #[repr(C)]
                enum Kind {
                    A,
                }
            ))
            .contains("`Kind` is an enum")
        );
        assert!(message(quote!(#[repr(C)] union Bits { x: u8 })).contains("`Bits` is a union"));
        assert!(
            message(quote!(
                #[repr(C)]
                struct Unit;
            ))
            .contains("without fields")
        );
    }

    #[test]
    fn finds_its_traits_in_the_facade_unless_told() {
        let default = expand(quote!(
            #[repr(C)]
            struct P(u8);
        ))
        .unwrap()
        .to_string();
        assert!(default.contains(":: spmd :: Element for P"), "{default}");
        let named = expand(quote!(
            #[repr(C)]
            #[spmd(crate = a::b)]
            struct P(u8);
        ))
        .unwrap();
        assert!(named.to_string().contains("impl a :: b :: Element for P"));
        let unknown = quote!(
            #[repr(C)]
            #[spmd(path = a)]
            struct P(u8);
        );
        assert!(message(unknown).contains("crate = path"));
    }
}
