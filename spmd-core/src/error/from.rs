//! What `?` turns into an error of this library.

use std::error::Error as StdError;
use std::fmt;
use std::{env, io, net, num, str, string, time};

use super::{Error, User, causes};

impl From<Box<dyn StdError + Send + Sync>> for Error {
    fn from(error: Box<dyn StdError + Send + Sync>) -> Error {
        match error.downcast::<Error>() {
            Ok(error) => *error,
            Err(source) => Error::User(Box::new(User { source })),
        }
    }
}

/// Of an error that may not go to other threads its texts are kept.
impl From<Box<dyn StdError>> for Error {
    fn from(error: Box<dyn StdError>) -> Error {
        match error.downcast::<Error>() {
            Ok(error) => *error,
            Err(error) => Error::user(Words::of(&*error)),
        }
    }
}

#[cfg(feature = "anyhow")]
impl From<anyhow::Error> for Error {
    fn from(error: anyhow::Error) -> Error {
        Error::user(error)
    }
}

macro_rules! from {
    ($($type:ty)*) => {$(
        impl From<$type> for Error {
            fn from(error: $type) -> Error {
                Error::user(error)
            }
        }
    )*};
}

from! {
    &str
    String
    io::Error
    fmt::Error
    num::ParseIntError
    num::ParseFloatError
    num::TryFromIntError
    str::ParseBoolError
    str::Utf8Error
    string::FromUtf8Error
    net::AddrParseError
    env::VarError
    time::SystemTimeError
}

/// What an error has said, and in front of what.
#[derive(Debug)]
struct Words {
    text: String,
    source: Option<Box<Words>>,
}

impl Words {
    fn of(error: &(dyn StdError + 'static)) -> Words {
        let texts: Vec<String> = causes::all(error).map(ToString::to_string).collect();
        let behind = |source, text| Some(Box::new(Words { text, source }));
        let mut all = texts.into_iter();
        let text = all.next().unwrap_or_default();
        Words { text, source: all.rev().fold(None, behind) }
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for Words {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
