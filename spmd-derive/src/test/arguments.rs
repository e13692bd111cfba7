//! What stands in the brackets of `#[spmd::test(..)]`.

use proc_macro2::Ident;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, LitInt, Path, Result, Token, parse_quote};

/// Where the ranks of a test run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Threads,
    VirtualRanks,
    Processes,
}

impl Place {
    const ALL: [Place; 3] = [Place::Threads, Place::VirtualRanks, Place::Processes];

    pub(super) fn name(self) -> &'static str {
        match self {
            Place::Threads => "threads",
            Place::VirtualRanks => "virtual_ranks",
            Place::Processes => "processes",
        }
    }

    fn of(name: &Ident) -> Result<Place> {
        Place::ALL.into_iter().find(|place| name == place.name()).ok_or_else(|| {
            let names = Place::ALL.map(Place::name).join("`, `");
            Error::new(name.span(), format!("there is no place `{name}`: it is one of `{names}`"))
        })
    }
}

pub(super) struct Arguments {
    pub(super) ranks: Vec<usize>,
    pub(super) places: Vec<Place>,
    /// The crate in which the generated code finds what it names.
    pub(super) spmd: Path,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Arguments> {
        let mut arguments = Arguments {
            ranks: vec![1, 2, 5],
            places: vec![Place::Threads, Place::VirtualRanks],
            spmd: parse_quote!(::spmd),
        };
        while !input.is_empty() {
            if input.parse::<Option<Token![crate]>>()?.is_some() {
                input.parse::<Token![=]>()?;
                arguments.spmd = input.call(Path::parse_mod_style)?;
            } else {
                let name: Ident = input.parse()?;
                match name.to_string().as_str() {
                    "ranks" => arguments.ranks = list(input, rank_count)?,
                    "places" => arguments.places = list(input, |input| Place::of(&input.parse()?))?,
                    _ => {
                        let text = format!(
                            "#[spmd::test] has no `{name}`: it takes `ranks = [1, 2, 5]` and \
                             `places = [threads, virtual_ranks, processes]`"
                        );
                        return Err(Error::new(name.span(), text));
                    }
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(arguments)
    }
}

fn rank_count(input: ParseStream<'_>) -> Result<usize> {
    let literal: LitInt = input.parse()?;
    match literal.base10_parse()? {
        0 => Err(Error::new(literal.span(), "a test needs at least one rank")),
        ranks => Ok(ranks),
    }
}

/// `= [a, b, ..]`, of which there is one at least, and none twice.
fn list<T: Copy + PartialEq>(
    input: ParseStream<'_>,
    item: fn(ParseStream<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    input.parse::<Token![=]>()?;
    let inside;
    let bracket = syn::bracketed!(inside in input);
    let all = Punctuated::<T, Token![,]>::parse_terminated_with(&inside, item)?;
    let all: Vec<T> = all.into_iter().collect();
    let twice = (1..all.len()).any(|at| all[..at].contains(&all[at]));
    if all.is_empty() || twice {
        let text =
            if twice { "the same twice: each is one test" } else { "an empty list: no test" };
        return Err(Error::new(bracket.span.join(), text));
    }
    Ok(all)
}
