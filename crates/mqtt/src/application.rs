//! The properties that belong to an application message rather than to one hop of its way.

use crate::property::{Properties, Property};
use crate::{DecodeError, EncodeError, PacketKind};

/// The properties of a message that a server passes on unaltered and in order [MQTT-3.3.2-17]: Payload Format Indicator,
/// Content Type, Response Topic, Correlation Data and User Properties, as encoded bytes, checked once on arrival.
///
/// The bytes may be those of a received packet, where properties of the hop (Topic Alias, Message Expiry Interval,
/// Subscription Identifiers, Will Delay Interval) stand between the others; those are skipped by every method.
#[derive(Clone, Copy, Default)]
pub struct ApplicationProperties<'a> {
    /// From the first application property to the end of the last.
    pub(crate) raw: &'a [u8],
    /// Bytes of `raw` that are application properties.
    pub(crate) len: u32,
}

/// One application property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the specification's")]
pub enum ApplicationProperty<'a> {
    /// 0: bytes, 1: UTF-8.
    PayloadFormatIndicator(u8),
    ContentType(&'a str),
    /// A topic name without wildcards.
    ResponseTopic(&'a str),
    CorrelationData(&'a [u8]),
    UserProperty(&'a str, &'a str),
}

impl<'a> ApplicationProperties<'a> {
    /// Checks bytes that [`write_to`](Self::write_to) or [`build`](Self::build) made, after a way over the network or
    /// the disk.
    ///
    /// # Errors
    /// As for the properties of a PUBLISH; also refuses properties of the hop.
    pub fn from_encoded(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut properties = Properties::new(bytes);
        while let Some(property) = properties.next()? {
            if ApplicationProperty::from_property(property).is_none() {
                return Err(property.not_allowed(PacketKind::Publish));
            }
        }
        Ok(Self {
            raw: bytes,
            len: bytes.len() as u32,
        })
    }

    /// Encodes a list of properties, for [`from_encoded`](Self::from_encoded) to borrow from.
    ///
    /// # Errors
    /// [`EncodeError::StringTooLong`]. Values and repetitions are checked by `from_encoded`.
    pub fn build<'p>(
        properties: impl IntoIterator<Item = ApplicationProperty<'p>>,
    ) -> Result<Vec<u8>, EncodeError> {
        let mut bytes = Vec::new();
        for property in properties {
            Property::from(property).write(&mut bytes)?;
        }
        Ok(bytes)
    }

    /// Whether there are none.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that [`write_to`](Self::write_to) appends.
    #[must_use]
    #[inline]
    pub const fn encoded_len(&self) -> usize {
        self.len as usize
    }

    /// The properties in the order they were sent in.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = ApplicationProperty<'a>> + 'a {
        let mut properties = Properties::of_publish(self.raw);
        std::iter::from_fn(move || {
            // The bytes were checked when they were decoded, so there is no error to see here.
            while let Ok(Some(property)) = properties.next() {
                let property = ApplicationProperty::from_property(property);
                if property.is_some() {
                    return property;
                }
            }
            None
        })
    }

    /// Appends the properties in their encoded form, without a length before them.
    #[inline]
    pub fn write_to(&self, out: &mut Vec<u8>) {
        if self.raw.len() == self.encoded_len() {
            out.extend_from_slice(self.raw);
        } else {
            self.write_without_hop_properties(out);
        }
    }

    #[cold]
    fn write_without_hop_properties(&self, out: &mut Vec<u8>) {
        let mut rest = self.raw;
        while let Some((len, is_application)) = span(rest) {
            let (property, after) = rest.split_at(len.min(rest.len()));
            if is_application {
                out.extend_from_slice(property);
            }
            rest = after;
        }
    }
}

/// Length of the checked property at the front, and whether it is an application property.
fn span(bytes: &[u8]) -> Option<(usize, bool)> {
    let mut properties = Properties::of_publish(bytes);
    let property = properties.next().ok()??;
    let is_application = ApplicationProperty::from_property(property).is_some();
    Some((bytes.len() - properties.left(), is_application))
}

impl PartialEq for ApplicationProperties<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Eq for ApplicationProperties<'_> {}

impl std::fmt::Debug for ApplicationProperties<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> ApplicationProperty<'a> {
    /// The property if it is one of the message, `None` for all others.
    pub(crate) const fn from_property(property: Property<'a>) -> Option<Self> {
        match property {
            Property::PayloadFormatIndicator(value) => Some(Self::PayloadFormatIndicator(value)),
            Property::ContentType(text) => Some(Self::ContentType(text)),
            Property::ResponseTopic(topic) => Some(Self::ResponseTopic(topic)),
            Property::CorrelationData(data) => Some(Self::CorrelationData(data)),
            Property::UserProperty(name, value) => Some(Self::UserProperty(name, value)),
            _ => None,
        }
    }
}

/// Finds the application properties while a section is walked.
pub(crate) struct Collector<'a> {
    section: &'a [u8],
    start: usize,
    end: usize,
    len: usize,
}

impl<'a> Collector<'a> {
    pub(crate) const fn new(section: &'a [u8]) -> Self {
        Self {
            section,
            start: 0,
            end: 0,
            len: 0,
        }
    }

    /// Notes an application property that stands at `start..end` of the section.
    #[inline]
    pub(crate) const fn add(&mut self, start: usize, end: usize) {
        if self.len == 0 {
            self.start = start;
        }
        self.end = end;
        self.len += end - start;
    }

    #[inline]
    pub(crate) fn finish(self) -> ApplicationProperties<'a> {
        ApplicationProperties {
            raw: &self.section[self.start..self.end],
            len: self.len as u32,
        }
    }
}
