//! Reading a tuning file: a walk over what the TOML parser gives, so that whatever is wrong has a
//! line.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::format::{Key, VERSION, mode_named};
use super::rules::{Rule, Section};
use crate::algorithm::find;
use crate::call::Kind;

/// Bytes of a segment that `SPMD_SEGMENT` allows as well.
const SEGMENTS: Range<usize> = 64..(1 << 30) + 1;

/// Something wrong: where, if that is known, and what.
pub(super) struct Wrong {
    pub(super) at: Option<usize>,
    pub(super) what: String,
}

impl From<toml::de::Error> for Wrong {
    fn from(error: toml::de::Error) -> Wrong {
        let what = format!("this is not TOML: {}", error.message().replace('\n', ", "));
        Wrong { at: error.span().map(|span| span.start), what }
    }
}

type Result<T> = std::result::Result<T, Wrong>;
type Value<'i> = Spanned<DeValue<'i>>;

fn wrong<T>(at: &Range<usize>, what: impl Into<String>) -> Result<T> {
    Err(Wrong { at: Some(at.start), what: what.into() })
}

/// All sections of a file.
pub(super) fn sections(text: &str) -> Result<BTreeMap<Key, Section>> {
    let all = DeTable::parse(text)?;
    let Some(version) = all.get_ref().get("version") else {
        return Err(Wrong { at: None, what: format!("it does not say version = {VERSION}") });
    };
    if number(version, "a version")? != VERSION {
        let what = format!("its version is another than {VERSION}, which this build reads");
        return wrong(&version.span(), what);
    }
    let mut sections = BTreeMap::new();
    for (name, value) in all.get_ref().iter().filter(|(name, _)| name.get_ref() != "version") {
        let Some(mode) = mode_named(name.get_ref()) else {
            let what = format!("'{}' is not threads, virtual or processes", name.get_ref());
            return wrong(&name.span(), what);
        };
        for (ranks, value) in table(value, "a section for each number of ranks")? {
            match ranks.get_ref().parse() {
                Ok(count @ 1..) => sections.insert((mode, count), section(value)?),
                _ => {
                    let what = format!("'{}' is not a number of ranks", ranks.get_ref());
                    return wrong(&ranks.span(), what);
                }
            };
        }
    }
    Ok(sections)
}

/// One section, as an inline table.
pub(super) fn inline(text: &str) -> Result<Section> {
    section(&DeValue::parse(text)?)
}

fn section(value: &Value<'_>) -> Result<Section> {
    let mut section = Section::default();
    for (name, value) in table(value, "a section")? {
        if name.get_ref() == "segment" {
            let bytes = number(value, "a number of bytes")?;
            if !SEGMENTS.contains(&bytes) {
                return wrong(&value.span(), "a segment has 64 to 2³⁰ bytes");
            }
            section.segment = Some(bytes);
            continue;
        }
        let Some(kind) = Kind::named(name.get_ref()) else {
            let what = format!("no call is named {}", name.get_ref());
            return wrong(&name.span(), what);
        };
        let Some(list) = value.get_ref().as_array() else {
            let what = format!("{} wants a list of {{ up_to = BYTES, use = NAME }}", kind.name());
            return wrong(&value.span(), what);
        };
        let rules = list.iter().map(|value| rule(kind, value)).collect::<Result<Vec<_>>>()?;
        let rising = |pair: &[Rule]| match (pair[0].up_to, pair[1].up_to) {
            (Some(one), Some(next)) => one < next,
            (one, _) => one.is_some(),
        };
        if !rules.windows(2).all(rising) {
            return wrong(&value.span(), "up_to must rise, and only the last may be without it");
        }
        section.rules.set(kind, rules);
    }
    Ok(section)
}

fn rule(kind: Kind, value: &Value<'_>) -> Result<Rule> {
    let (mut up_to, mut algorithm) = (None, None);
    for (name, value) in table(value, "{ up_to = BYTES, use = NAME }")? {
        match &**name.get_ref() {
            "up_to" => up_to = Some(number(value, "a number of bytes")?),
            "use" => {
                let Some(text) = value.get_ref().as_str() else {
                    return wrong(&value.span(), "use wants the name of an algorithm");
                };
                let found = find(kind.name(), text);
                let found = found.map_err(|why| format!("there is no '{text}': {why}"));
                algorithm = match found {
                    Ok((_, algorithm)) => Some(algorithm),
                    Err(what) => return wrong(&value.span(), what),
                };
            }
            other => return wrong(&name.span(), format!("'{other}' is neither up_to nor use")),
        }
    }
    match algorithm {
        Some(algorithm) => Ok(Rule { up_to, algorithm }),
        None => wrong(&value.span(), "use = NAME is missing"),
    }
}

fn table<'a, 'i>(value: &'a Value<'i>, what: &str) -> Result<&'a DeTable<'i>> {
    let table = value.get_ref().as_table();
    table.map_or_else(|| wrong(&value.span(), format!("here belongs {what}")), Ok)
}

fn number(value: &Value<'_>, what: &str) -> Result<usize> {
    let number = value.get_ref().as_integer();
    let number = number.and_then(|it| usize::from_str_radix(it.as_str(), it.radix()).ok());
    number.map_or_else(|| wrong(&value.span(), format!("here belongs {what}")), Ok)
}
