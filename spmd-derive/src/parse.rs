//! What all derives read of a type: its representation, its fields, the path of the crate.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{
    DeriveInput, Error, Fields, GenericParam, Generics, Index, Member, Path, Result, parse_quote,
};

/// Which layouts `#[repr(..)]` asks for.
#[derive(Default)]
pub(crate) struct Repr {
    /// `C` or `transparent`: the fields lie as they are written.
    pub(crate) fixed: bool,
    /// An integer: the variants of an enum are its values.
    pub(crate) integer: Option<Ident>,
}

const INTEGERS: [&str; 10] =
    ["u8", "u16", "u32", "u64", "usize", "i8", "i16", "i32", "i64", "isize"];

impl Repr {
    pub(crate) fn of(input: &DeriveInput) -> Result<Repr> {
        let mut repr = Repr::default();
        for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("repr")) {
            attribute.parse_nested_meta(|meta| {
                repr.fixed |= meta.path.is_ident("C") || meta.path.is_ident("transparent");
                if let Some(name) = meta.path.get_ident().filter(|it| is_integer(it)) {
                    repr.integer = Some(name.clone());
                }
                if meta.input.peek(syn::token::Paren) {
                    let argument;
                    syn::parenthesized!(argument in meta.input);
                    argument.parse::<TokenStream>()?;
                }
                Ok(())
            })?;
        }
        Ok(repr)
    }
}

fn is_integer(name: &Ident) -> bool {
    INTEGERS.iter().any(|integer| name == integer)
}

/// The crate in which the generated code finds what it names.
pub(crate) fn crate_path(input: &DeriveInput) -> Result<Path> {
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

/// The names of fields, in their order.
pub(crate) fn members(fields: &Fields) -> impl Iterator<Item = Member> {
    fields.iter().enumerate().map(|(index, field)| {
        field.ident.clone().map_or(Member::Unnamed(Index::from(index)), Member::Named)
    })
}

/// The generics of the type, with what an `Element` asks of them: all type parameters are elements, and
/// so are the fields whose types are made of them.
pub(crate) fn bounded(input: &DeriveInput, fields: &Fields, spmd: &Path) -> Result<Generics> {
    if let Some(lifetime) = input.generics.lifetimes().next() {
        let text = format!(
            "`{}` borrows for `{}`, and an element borrows nothing: it consists of values alone",
            input.ident, lifetime.lifetime
        );
        return Err(Error::new_spanned(lifetime, text));
    }
    let mut generics = input.generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(#spmd::Element));
    }
    // A field of the type of a parameter has that bound.
    let parameters: Vec<String> =
        input.generics.type_params().map(|it| it.ident.to_string()).collect();
    for ty in made_of_parameters(input, fields) {
        if !parameters.contains(&ty.to_token_stream().to_string()) {
            generics.make_where_clause().predicates.push(parse_quote!(#ty: #spmd::Element));
        }
    }
    Ok(generics)
}

/// The types of fields which name a type parameter.
pub(crate) fn made_of_parameters<'a>(
    input: &'a DeriveInput,
    fields: &'a Fields,
) -> impl Iterator<Item = &'a syn::Type> {
    fields.iter().map(|field| &field.ty).filter(|ty| names_any(ty.to_token_stream(), input))
}

fn names_any(tokens: TokenStream, input: &DeriveInput) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(name) => input.generics.type_params().any(|it| it.ident == name),
        TokenTree::Group(group) => names_any(group.stream(), input),
        _ => false,
    })
}

/// What the name and the identity of a type say of its parameters.
pub(crate) fn parameters(generics: &Generics, spmd: &Path) -> Vec<TokenStream> {
    let described = |parameter: &GenericParam| match parameter {
        GenericParam::Lifetime(_) => None,
        GenericParam::Type(it) => {
            let name = &it.ident;
            Some(quote::quote!(#spmd::element::Parameter::Type(<#name as #spmd::Element>::DTYPE)))
        }
        GenericParam::Const(it) => {
            let name = &it.ident;
            Some(quote::quote!(#spmd::element::Parameter::Const(#name as ::core::primitive::i128)))
        }
    };
    generics.params.iter().filter_map(described).collect()
}

/// An error at the name of the type.
pub(crate) fn refuse<T>(name: &Ident, text: &str) -> Result<T> {
    Err(Error::new_spanned(name, text))
}

/// The same path, for errors that are to be told there.
pub(crate) fn told_at(path: &Path, span: Span) -> TokenStream {
    let told = |mut token: TokenTree| {
        token.set_span(token.span().located_at(span));
        token
    };
    path.to_token_stream().into_iter().map(told).collect()
}
