//! The filter of a SUBSCRIBE: a topic filter, perhaps inside a shared subscription (5.0, 4.8.2).

use std::fmt;
use std::sync::Arc;

use thicket_mqtt::ReasonCode;

use super::{DEFAULT_MAXIMUM_LEVELS, MAXIMUM_SUBSCRIPTION_BYTES, TopicFilter, TopicFilterError};

const SHARE_PREFIX: &str = "$share/";

/// The name of a group of a shared subscription: not empty, without `/`, `+` and `#`. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShareName(Arc<str>);

impl ShareName {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ShareName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The filter of a SUBSCRIBE or UNSUBSCRIBE. `Display` gives the text it was parsed from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubscriptionFilter {
    /// The group, `None` for a subscription that is not shared.
    pub share_name: Option<ShareName>,
    /// What the topics must match.
    pub filter: TopicFilter,
}

/// Why a text is no subscription. Protocol: the peer chose it; answer 0x8F for this filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubscriptionFilterError {
    /// The share name has at least one character [MQTT-4.8.2-1].
    #[error("share name is empty")]
    EmptyShareName,
    /// The share name holds neither `+` nor `#` [MQTT-4.8.2-2].
    #[error("share name holds a wildcard")]
    WildcardInShareName,
    /// A `/` and a filter follow the share name [MQTT-4.8.2-2].
    #[error("shared subscription has no topic filter")]
    MissingTopicFilter,
    /// The filter itself is wrong.
    #[error(transparent)]
    TopicFilter(#[from] TopicFilterError),
}

impl SubscriptionFilterError {
    /// The reason code for the peer: Topic Filter invalid.
    #[must_use]
    pub const fn reason_code(self) -> ReasonCode {
        ReasonCode::TopicFilterInvalid
    }
}

impl SubscriptionFilter {
    /// Parses `text` with up to [`DEFAULT_MAXIMUM_LEVELS`] levels after the share name.
    ///
    /// # Errors
    /// Which rule of 4.7 or 4.8.2 the text breaks.
    pub fn parse(text: &str) -> Result<Self, SubscriptionFilterError> {
        Self::parse_with_maximum_levels(text, DEFAULT_MAXIMUM_LEVELS)
    }

    /// Parses `text` with up to `maximum` levels after the share name.
    ///
    /// # Errors
    /// Which rule of 4.7 or 4.8.2 the text breaks.
    pub fn parse_with_maximum_levels(
        text: &str,
        maximum: usize,
    ) -> Result<Self, SubscriptionFilterError> {
        if text.len() > MAXIMUM_SUBSCRIPTION_BYTES {
            return Err(TopicFilterError::TooLong { bytes: text.len() }.into());
        }
        let Some(shared) = text.strip_prefix(SHARE_PREFIX) else {
            let filter = TopicFilter::with_maximum_levels(text, maximum)?;
            return Ok(Self {
                share_name: None,
                filter,
            });
        };
        let (share_name, filter) = match shared.split_once('/') {
            Some(("", _)) => return Err(SubscriptionFilterError::EmptyShareName),
            Some((_, "")) => return Err(SubscriptionFilterError::MissingTopicFilter),
            None if shared.is_empty() => return Err(SubscriptionFilterError::EmptyShareName),
            None => return Err(SubscriptionFilterError::MissingTopicFilter),
            Some(both) => both,
        };
        if share_name.contains(['+', '#']) {
            return Err(SubscriptionFilterError::WildcardInShareName);
        }
        if share_name.contains('\0') {
            return Err(TopicFilterError::NullCharacter.into());
        }
        let filter = TopicFilter::with_maximum_levels(filter, maximum)?;
        Ok(Self {
            share_name: Some(ShareName(share_name.into())),
            filter,
        })
    }

    /// Whether the subscription is shared.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.share_name.is_some()
    }
}

impl fmt::Display for SubscriptionFilter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.share_name {
            Some(share_name) => write!(formatter, "{SHARE_PREFIX}{share_name}/{}", self.filter),
            None => self.filter.fmt(formatter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SubscriptionFilterError as Error;
    use super::*;

    #[test]
    fn subscription_filters_are_parsed() {
        let misplaced = Error::TopicFilter(TopicFilterError::MisplacedMultiLevelWildcard);
        let null = Error::TopicFilter(TopicFilterError::NullCharacter);
        let longest = "a".repeat(65_520);
        let too_long = format!("$share/g/{}", "a".repeat(65_520 - 8));
        type Parts = (Option<&'static str>, &'static str);
        let cases: &[(&str, &str, Result<Parts, Error>)] = &[
            ("not shared", "a/+", Ok((None, "a/+"))),
            ("shared", "$share/g/a/+", Ok((Some("g"), "a/+"))),
            ("shared, all", "$share/g/#", Ok((Some("g"), "#"))),
            (
                "shared, leading slash",
                "$share/g//a",
                Ok((Some("g"), "/a")),
            ),
            (
                "shared, a dollar topic",
                "$share/g/$SYS/#",
                Ok((Some("g"), "$SYS/#")),
            ),
            ("shared, one slash", "$share/g//", Ok((Some("g"), "/"))),
            ("other case", "$Share/g/a", Ok((None, "$Share/g/a"))),
            ("without slash", "$share", Ok((None, "$share"))),
            ("nothing", "$share/", Err(Error::EmptyShareName)),
            ("empty name", "$share//a", Err(Error::EmptyShareName)),
            ("no filter", "$share/g", Err(Error::MissingTopicFilter)),
            ("empty filter", "$share/g/", Err(Error::MissingTopicFilter)),
            (
                "plus in the name",
                "$share/g+/a",
                Err(Error::WildcardInShareName),
            ),
            (
                "hash in the name",
                "$share/#/a",
                Err(Error::WildcardInShareName),
            ),
            ("null in the name", "$share/g\0/a", Err(null)),
            ("bad filter", "$share/g/a/#/b", Err(misplaced)),
            (
                "too long",
                &too_long,
                Err(Error::TopicFilter(TopicFilterError::TooLong {
                    bytes: 65_521,
                })),
            ),
        ];
        for (name, text, expected) in cases {
            let parsed = SubscriptionFilter::parse(text);
            let parts = parsed.as_ref().map_err(|error| *error).map(|parsed| {
                (
                    parsed.share_name.as_ref().map(ShareName::as_str),
                    parsed.filter.as_str(),
                )
            });
            assert_eq!(parts, *expected, "{name}");
            match parsed {
                Ok(parsed) => assert_eq!(parsed.to_string(), *text, "{name}"),
                Err(error) => assert_eq!(error.reason_code() as u8, 0x8F, "{name}"),
            }
        }
        assert!(SubscriptionFilter::parse(&longest).is_ok());
    }
}
