//! The values of options, read and checked.

pub(crate) fn size(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" | "KIB" => 1 << 10,
        "M" | "MB" | "MIB" => 1 << 20,
        "G" | "GB" | "GIB" => 1 << 30,
        other => return Err(format!("'{other}' is no unit: K, M or G")),
    };
    let number: usize = digits.parse().map_err(|_| format!("'{digits}' is no number"))?;
    number.checked_mul(unit).filter(|bytes| *bytes <= 1 << 40).ok_or("too large".to_owned())
}

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| format!("'{text}' is no number"))?;
    if value > 0.0 && value <= 3600.0 { Ok(value) } else { Err("between 0 and 3600".into()) }
}

pub(crate) fn calls(text: &str) -> Result<usize, String> {
    let value: usize = text.parse().map_err(|_| format!("'{text}' is no number"))?;
    if (1..=1_000_000_000).contains(&value) { Ok(value) } else { Err("between 1 and 1e9".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("8"), Ok(8));
        assert_eq!(size("64K"), Ok(65_536));
        assert_eq!(size("3MiB"), Ok(3 << 20));
        assert!(size("8X").is_err() && size("K").is_err() && size("99999999G").is_err());
    }
}
