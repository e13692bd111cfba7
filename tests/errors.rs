//! Errors of a program's own, by `?`, with what is behind them.

use std::error::Error as StdError;

use anyhow::Context;
use spmd::Fault;
use spmd::prelude::*;

/// What each rank but the first is told of an error of that.
fn told(f: impl Fn() -> Result<()> + Sync) -> (Error, String) {
    let heard = std::sync::Mutex::new(String::new());
    let ended = spmd(2, |ctx| {
        if ctx.rank() == 0 {
            return f();
        }
        let error = ctx.recv(&mut [0], 0, 0).expect_err("rank 0 fails");
        *heard.lock().unwrap() = error.to_string();
        Ok(())
    });
    (ended.expect_err("rank 0 fails"), heard.into_inner().unwrap())
}

fn read() -> anyhow::Result<f64> {
    let text = "1.x";
    text.parse::<f64>().with_context(|| format!("no number: {text}")).context("reading the mesh")
}

#[test]
fn those_of_anyhow_keep_their_context() {
    let (error, heard) = told(|| read().map(drop).map_err(Error::from));
    let chain = "reading the mesh: no number: 1.x: invalid float literal";
    assert_eq!(format!("{error:?}"), chain);
    assert!(heard.ends_with(&format!("it returned an error: {chain}")), "{heard}");
    let number = error.source().and_then(StdError::source).and_then(StdError::source);
    assert!(number.is_some_and(|number| number.is::<std::num::ParseFloatError>()));
    // By `?`, and by name.
    let question = || -> Result<f64> { Ok(read()?) };
    assert_eq!(question().unwrap_err().to_string(), "reading the mesh");
    assert_eq!(Error::user(read().unwrap_err()).to_string(), "reading the mesh");
}

#[test]
fn boxed_ones_with_and_without_other_threads() {
    let parse = || -> std::result::Result<i32, Box<dyn StdError>> { Ok("7x".parse()?) };
    let ours = || -> Result<i32> { Ok(parse()?) };
    assert_eq!(ours().unwrap_err().to_string(), "invalid digit found in string");
    let parse =
        || -> std::result::Result<i32, Box<dyn StdError + Send + Sync>> { Ok("7x".parse()?) };
    let ours = || -> Result<i32> { Ok(parse()?) };
    assert!(ours().unwrap_err().source().unwrap().is::<std::num::ParseIntError>());
    let chained = || -> Result<f64> {
        read().map_err(|error| -> Box<dyn StdError> { error.into() })?;
        unreachable!("it is no number")
    };
    let words = "reading the mesh: no number: 1.x: invalid float literal";
    assert_eq!(format!("{:?}", chained().unwrap_err()), words);
}

/// What this library has said stays what it is, also within an error of the program's.
#[test]
fn ours_come_out_again() {
    let ours = || ctx_error().map_err(|error| -> Box<dyn StdError + Send + Sync> { error.into() });
    let again = || -> Result<()> { Ok(ours()?) };
    assert!(matches!(again(), Err(Error::Argument(_))));
    let ended = spmd(2, |ctx| -> Result<()> {
        ctx.recv(&mut [0], 1 - ctx.rank(), 0).context("the halo")?;
        Ok(())
    });
    let ended = ended.unwrap_err();
    assert!(matches!(ended, Error::User(_)), "{ended}");
    assert!(matches!(ended.fault(), Some(Fault::Deadlock { .. })), "{ended:?}");
    let text = format!("{ended:?}");
    assert!(text.starts_with("the halo: ") && text.contains("deadlock"), "{text}");
}

fn ctx_error() -> Result<()> {
    spmd(0, |_| Ok(())).map(drop)
}

#[test]
fn question_marks_on_the_standard_library() {
    fn all(text: &str) -> Result<()> {
        let _: u32 = text.parse()?;
        let _: f64 = text.parse()?;
        let _: bool = text.parse()?;
        let _ = u8::try_from(300)?;
        let _ = std::str::from_utf8(text.as_bytes())?;
        let _ = String::from_utf8(text.into())?;
        let _ = std::env::var("NO_SUCH_VARIABLE_AT_ALL")?;
        let _ = std::fs::read("/no/such/file")?;
        Err("a text")?;
        Ok(())
    }
    assert_eq!(all("x").unwrap_err().to_string(), "invalid digit found in string");
    assert!(all("3").is_err());
}

#[test]
fn main_gives_nothing_or_the_error() {
    fn all() -> Result<()> {
        spmd::main(|ctx| ctx.allreduce_value(ctx.rank(), Sum))
    }
    all().unwrap();
    let ended = spmd::main(|_| -> Result<()> { Err("no more data".into()) });
    assert_eq!(ended.unwrap_err().to_string(), "no more data");
}
