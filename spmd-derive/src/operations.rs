//! `#[derive(Sum)]`, `#[derive(Prod)]`, `#[derive(Min)]`, `#[derive(Max)]`: an operation of the library
//! on a type of the program.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Fields, Path, Result, parse_quote};

use crate::parse::{Repr, bounded, crate_path, made_of_parameters, members, refuse, told_at};

/// Which operation is derived.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Derived {
    Sum,
    Prod,
    Min,
    Max,
}

impl Derived {
    fn name(self) -> &'static str {
        match self {
            Derived::Sum => "Sum",
            Derived::Prod => "Prod",
            Derived::Min => "Min",
            Derived::Max => "Max",
        }
    }
}

pub(crate) fn expand(derived: Derived, input: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(input)?;
    let (name, spmd) = (&input.ident, crate_path(&input)?);
    match (&input.data, derived) {
        (Data::Struct(data), _) => of_fields(derived, &input, &data.fields, &spmd),
        (Data::Enum(_), Derived::Min | Derived::Max) => of_enum(derived, &input, &spmd),
        (Data::Enum(_), _) => {
            let text = format!(
                "#[derive({})] is for structs: variants of the enum `{name}` have no {}",
                derived.name(),
                if derived == Derived::Sum { "sum" } else { "product" },
            );
            refuse(name, &text)
        }
        (Data::Union(_), _) => refuse(
            name,
            &format!("#[derive({})] is for structs; `{name}` is a union", derived.name()),
        ),
    }
}

/// Each field by itself.
fn of_fields(
    derived: Derived,
    input: &DeriveInput,
    fields: &Fields,
    spmd: &Path,
) -> Result<TokenStream> {
    let (name, text) = (&input.ident, derived.name());
    let op = Ident::new(text, Span::call_site());
    let mut generics = bounded(input, fields, spmd)?;
    for ty in made_of_parameters(input, fields) {
        let predicate = parse_quote!(#spmd::#op: #spmd::Operation<#ty>);
        generics.make_where_clause().predicates.push(predicate);
    }
    let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
    let combined = members(fields).zip(fields).map(|(member, field)| {
        let (ty, span) = (&field.ty, field.ty.span());
        let spmd = told_at(spmd, span);
        let combine = quote_spanned!(span=> #spmd::Operation::<#ty>::combine);
        quote!(#member: #combine(self, left.#member, right.#member))
    });
    Ok(quote! {
        #[automatically_derived]
        #[allow(clippy::multiple_bound_locations)]
        impl #impl_generics #spmd::Operation<#name #ty_generics> for #spmd::#op #where_clause {
            const NAME: &'static ::core::primitive::str = #text;

            #[inline(always)]
            fn combine(&self, left: #name #ty_generics, right: #name #ty_generics) -> #name #ty_generics {
                #name { #(#combined),* }
            }
        }
    })
}

/// By the values of the variants.
fn of_enum(derived: Derived, input: &DeriveInput, spmd: &Path) -> Result<TokenStream> {
    let (name, text) = (&input.ident, derived.name());
    let op = Ident::new(text, Span::call_site());
    let Some(integer) = Repr::of(input)?.integer else {
        let text = format!(
            "#[derive({text})] compares numbers: add #[repr(u8)], or another integer, to `{name}`"
        );
        return refuse(name, &text);
    };
    let integer = quote!(::core::primitive::#integer);
    Ok(quote! {
        #[automatically_derived]
        impl #spmd::Operation<#name> for #spmd::#op {
            const NAME: &'static ::core::primitive::str = #text;

            #[inline(always)]
            fn combine(&self, left: #name, right: #name) -> #name {
                let (l, r) = (left as #integer, right as #integer);
                if #spmd::Operation::combine(self, l, r) == l { left } else { right }
            }
        }
    })
}

#[cfg(test)]
mod tests;
