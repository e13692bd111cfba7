//! What an error weighs, what is behind it, and how it shows itself.

use std::error::Error as _;

use super::{Error, Result};
use crate::fault::{Cause, Fault};
use crate::spmd;

#[test]
fn an_error_is_two_words_long_and_so_is_a_result_without_a_value() {
    assert_eq!(size_of::<Error>(), 16);
    assert_eq!(size_of::<Result<()>>(), 16);
    assert_eq!(size_of::<Result<usize>>(), 16);
    assert_eq!(size_of::<Option<Error>>(), 16);
}

#[derive(Debug, thiserror::Error)]
#[error("step {step} does not converge")]
struct Diverged {
    step: usize,
    source: std::num::ParseFloatError,
}

#[test]
fn the_programs_own_error_is_behind_it_with_all_that_is_behind_that() {
    let ended = spmd(2, |ctx| {
        if ctx.rank() == 1 {
            let source = "1.x".parse::<f64>().unwrap_err();
            return Err(Error::user(Diverged { step: 7, source }));
        }
        ctx.recv(&mut [0], 1, 0).map(drop)
    });
    let error = ended.unwrap_err();
    assert_eq!(error.to_string(), "step 7 does not converge");
    let own = error.source().and_then(|source| source.downcast_ref::<Diverged>()).unwrap();
    assert_eq!(own.step, 7);
    assert_eq!(own.source().unwrap().to_string(), "invalid float literal");
}

#[test]
fn each_conversion_keeps_what_it_is_given() {
    let io = Error::from(std::io::Error::other("no disk"));
    assert!(io.source().unwrap().is::<std::io::Error>());
    let text = Error::from("no more data");
    assert_eq!(text.source().unwrap().to_string(), "no more data");
    let Error::User(user) = Error::from(Box::<dyn std::error::Error + Send + Sync>::from("x"))
    else {
        panic!("it is the program's own")
    };
    assert_eq!(user.source.to_string(), "x");
    let refused = Error::system("cannot bind", std::io::Error::other("in use"));
    assert_eq!(refused.to_string(), "cannot bind: in use");
    assert_eq!(refused.source().unwrap().to_string(), "in use");
}

#[test]
fn debug_is_the_text_in_one_line_and_the_fields_in_many() {
    let fault = Fault::Rank { rank: 1, cause: Cause::Killed(9) };
    let call = "barrier at src/main.rs:14".to_owned();
    let error = Error::PeerFailed(Box::new(super::PeerFailed { rank: 1, fault, call }));
    assert_eq!(format!("{error:?}"), error.to_string());
    let fields = format!("{error:#?}").replace(['\n', ' '], "");
    let cause = "fault:Rank{rank:1,cause:Killed(9,),}";
    assert_eq!(fields, format!("PeerFailed{{rank:1,{cause},call:\"barrieratsrc/main.rs:14\",}}"));
}
