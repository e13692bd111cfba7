//! Which name may be meant by one that is none.

/// A name that is much like this one, to be asked about.
pub(crate) fn nearest<'a>(text: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |name: &&str| (strsim::jaro_winkler(text, name) * 1e6) as u32;
    let best = names.into_iter().max_by_key(likeness)?;
    (likeness(&best) > 700_000).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_names() {
        let names = ["none", "core", "numa"];
        assert_eq!(nearest("cores", names), Some("core"));
        assert_eq!(nearest("0-3", names), None);
    }
}
