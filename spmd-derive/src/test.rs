//! `#[spmd::test]`: one function, a test for each number of ranks in each place.

mod arguments;

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Error, Result, Token, Visibility};

use arguments::{Arguments, Place};

/// The function, as far as it matters.
struct Function {
    /// What belongs to each of the tests: `ignore`, `should_panic`.
    of_tests: Vec<Attribute>,
    of_itself: Vec<Attribute>,
    name: Ident,
    returns: bool,
    /// From `fn` on.
    text: TokenStream,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> Result<Function> {
        let attributes = input.call(Attribute::parse_outer)?;
        input.parse::<Visibility>()?;
        let text = input.fork().parse()?;
        let shape = "#[spmd::test] is for functions such as `fn name(ctx: &Ctx) -> Result<()>`";
        if input.parse::<Option<Token![fn]>>()?.is_none() {
            return Err(input.error(shape));
        }
        let name: Ident = input.parse()?;
        if input.peek(Token![<]) {
            return Err(input.error(format!("{shape}, without parameters of types")));
        }
        let arguments;
        syn::parenthesized!(arguments in input);
        let given = arguments.parse_terminated(argument, Token![,])?.len();
        if given != 1 {
            let text =
                format!("{shape}: it takes the rank alone, and `{name}` takes {given} arguments");
            return Err(Error::new(name.span(), text));
        }
        let returns = input.peek(Token![->]);
        input.parse::<TokenStream>()?;
        // The compiler has seen to `cfg` and `cfg_attr` before.
        let (of_tests, of_itself) = attributes.into_iter().partition(|attribute| {
            attribute.path().is_ident("ignore") || attribute.path().is_ident("should_panic")
        });
        Ok(Function { of_tests, of_itself, name, returns, text })
    }
}

/// An argument of a function, up to the comma behind it.
fn argument(input: ParseStream<'_>) -> Result<TokenStream> {
    let mut argument = TokenStream::new();
    let mut open = 0;
    while !input.is_empty() && (open > 0 || !input.peek(Token![,])) {
        open += i32::from(input.peek(Token![<])) - i32::from(input.peek(Token![>]));
        input.parse::<proc_macro2::TokenTree>()?.to_tokens(&mut argument);
    }
    Ok(argument)
}

pub(crate) fn expand(arguments: TokenStream, input: TokenStream) -> Result<TokenStream> {
    let arguments: Arguments = syn::parse2(arguments)?;
    let function: Function = syn::parse2(input)?;
    let Function { of_tests, of_itself, name, returns, text } = &function;
    let spmd = &arguments.spmd;
    let body = match returns {
        true => quote!(super::#name),
        false => quote!(|ctx: &#spmd::Ctx| {
            super::#name(ctx);
            #spmd::Result::Ok(())
        }),
    };
    let tests = arguments.places.iter().flat_map(|place| {
        let body = &body;
        arguments.ranks.iter().map(move |ranks| {
            let test = format_ident!("{}_{ranks}", place.name());
            let run = match place {
                Place::Threads => {
                    quote!(#spmd::testing::block(#spmd::Spmd::new(#ranks).threads(), #body))
                }
                Place::VirtualRanks => {
                    quote!(#spmd::testing::block(#spmd::Spmd::new(#ranks).virtual_ranks(), #body))
                }
                Place::Processes => {
                    let path = format!("::{test}");
                    quote!(#spmd::testing::processes(
                        ::core::concat!(::core::module_path!(), #path), #ranks, #body,
                    ))
                }
            };
            quote! {
                #[::core::prelude::v1::test]
                #(#of_tests)*
                fn #test() {
                    #run
                }
            }
        })
    });
    Ok(quote! {
        #[cfg(test)]
        #(#of_itself)*
        #text

        #[cfg(test)]
        mod #name {
            #(#tests)*
        }
    })
}

#[cfg(test)]
mod tests;
