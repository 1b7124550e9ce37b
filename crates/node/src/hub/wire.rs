//! The parts of which messages between hubs are made: little-endian, lengths before what they count.

/// The index of an item in a list.
pub(super) fn put_one_of<T: PartialEq>(out: &mut Vec<u8>, all: &[T], one: &T) {
    let place = all.iter().position(|it| it == one);
    out.push(
        place
            .and_then(|it| u8::try_from(it).ok())
            .unwrap_or(u8::MAX),
    );
}

pub(super) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// What is left of a payload that is being read.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn u64(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*bytes))
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// An item of a list, by its index.
    pub(super) fn one_of<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        all.get(usize::from(self.u8()?)).cloned()
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let (len, rest) = self.0.split_first_chunk()?;
        let (bytes, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    /// Items until the end.
    pub(super) fn rest_of<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let mut items = Vec::new();
        while !self.0.is_empty() {
            items.push(item(self)?);
        }
        Some(items)
    }
}
