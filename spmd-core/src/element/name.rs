//! The name of a declared type, with its parameters, as a constant.

use super::dtype::{DType, FNV_START, hash, hash_byte};

/// Bytes of a name with its parameters: what finds no room is left out.
const ROOM: usize = 256;

/// The name of a type that the program has declared, for `#[derive(Element)]`.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Name {
    path: &'static str,
    /// The path and the parameters, if there are any.
    text: [u8; ROOM],
    length: usize,
    /// A hash of the last part of the path and of the parameters.
    pub(super) id: u64,
}

/// A parameter of a type.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub enum Parameter {
    /// Of a type parameter.
    Type(DType),
    /// Of a constant: an integer, a `bool` or a `char`.
    Const(i128),
}

impl Name {
    /// The name of the type with this path (its name behind its module's) and these parameters.
    pub const fn of(path: &'static str, parameters: &[Parameter]) -> Name {
        let mut name = Name { path, text: [0; ROOM], length: 0, id: hash_name(path) };
        if parameters.is_empty() {
            return name;
        }
        name.say(path);
        let mut at = 0;
        while at < parameters.len() {
            name.say(if at == 0 { "<" } else { ", " });
            match parameters[at] {
                Parameter::Type(dtype) => {
                    name.say_dtype(&dtype);
                    name.id = hash(name.id, dtype.id);
                }
                Parameter::Const(value) => {
                    name.say_number(value);
                    name.id = hash(hash(name.id, value as u64), (value >> 64) as u64);
                }
            }
            at += 1;
        }
        name.say(">");
        name
    }

    pub(super) const fn text(&'static self) -> &'static str {
        match self.text.split_at(self.length).0 {
            [] => self.path,
            text => match str::from_utf8(text) {
                Ok(text) => text,
                Err(_) => panic!("a name consists of whole texts"),
            },
        }
    }

    const fn say(&mut self, text: &str) {
        let text = text.as_bytes();
        if self.length + text.len() > ROOM {
            return;
        }
        let mut at = 0;
        while at < text.len() {
            self.text[self.length + at] = text[at];
            at += 1;
        }
        self.length += text.len();
    }

    const fn say_dtype(&mut self, dtype: &DType) {
        if dtype.lanes == 1 {
            return self.say(dtype.name);
        }
        self.say("[");
        self.say(dtype.name);
        self.say("; ");
        self.say_number(dtype.lanes as i128);
        self.say("]");
    }

    const fn say_number(&mut self, value: i128) {
        if value < 0 {
            self.say("-");
        }
        let (mut rest, mut digits, mut first) = (value.unsigned_abs(), [b'0'; 40], 39);
        digits[first] += (rest % 10) as u8;
        while rest >= 10 {
            rest /= 10;
            first -= 1;
            digits[first] += (rest % 10) as u8;
        }
        match str::from_utf8(digits.split_at(first).1) {
            Ok(digits) => self.say(digits),
            Err(_) => panic!("digits are text"),
        }
    }
}

/// The hash of the last part of a path.
pub(super) const fn hash_name(path: &str) -> u64 {
    let bytes = path.as_bytes();
    let mut at = bytes.len();
    while at > 0 && bytes[at - 1] != b':' {
        at -= 1;
    }
    let mut state = FNV_START;
    while at < bytes.len() {
        state = hash_byte(state, bytes[at]);
        at += 1;
    }
    state
}
