//! Headers of every request, for receivers that authenticate the sender.

use ureq::http::{HeaderName, HeaderValue};

/// Names and values. Values are secrets: they are never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(HeaderName, HeaderValue)>);

/// Headers that the exporter sets itself.
const RESERVED: [&str; 4] = ["content-type", "content-length", "content-encoding", "host"];

impl Headers {
    /// Parses lines `NAME: VALUE`. Empty lines and those that begin with `#` are ignored.
    ///
    /// # Errors
    /// The first line that is not a header, in words that do not repeat it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut all = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let number = index + 1;
            let pair = line.split_once(':').and_then(|(name, value)| {
                let name = HeaderName::try_from(name.trim()).ok()?;
                let mut value = HeaderValue::try_from(value.trim()).ok()?;
                value.set_sensitive(true);
                Some((name, value))
            });
            let (name, value) =
                pair.ok_or_else(|| format!("line {number}: expected `NAME: VALUE`"))?;
            if RESERVED.contains(&name.as_str()) {
                return Err(format!("line {number}: `{name}` is set by the exporter"));
            }
            all.push((name, value));
        }
        Ok(Self(all))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(HeaderName, HeaderValue)> {
        self.0.iter()
    }
}

impl std::fmt::Debug for Headers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_headers_and_values_are_not_printed() {
        let headers =
            Headers::parse("# for the receiver\n\nAuthorization: Bearer a:b\nx-scope:  t1 \n");
        let headers = headers.expect("good");
        let pairs: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().expect("text")))
            .collect();
        assert_eq!(pairs, [("authorization", "Bearer a:b"), ("x-scope", "t1")]);
        assert!(!format!("{headers:?}").contains("Bearer"));
    }

    #[test]
    fn what_is_no_header_is_refused_by_its_line_without_its_value() {
        for (text, expected) in [
            ("a: b\nsecret", "line 2: expected `NAME: VALUE`"),
            ("a b: secret", "line 1: expected `NAME: VALUE`"),
            ("a: \u{1}secret", "line 1: expected `NAME: VALUE`"),
            (
                "Content-Type: secret",
                "line 1: `content-type` is set by the exporter",
            ),
        ] {
            let error = Headers::parse(text).expect_err(text);
            assert_eq!(error, expected);
        }
    }
}
