//! Bytes that wait to be written.

/// Written bytes in front that are worth moving the rest for.
const COMPACT_BYTES: usize = 64 << 10;

/// Packets appended at the end, written from the front.
#[derive(Debug, Default)]
pub(super) struct OutputBuffer {
    bytes: Vec<u8>,
    written: usize,
}

impl OutputBuffer {
    /// Where packets are appended.
    #[inline]
    pub(super) const fn appender(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    #[inline]
    pub(super) fn pending(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Removes `count` bytes from the front; if there are fewer, all.
    pub(super) fn consume(&mut self, count: usize) {
        self.written = (self.written + count).min(self.bytes.len());
        if self.written == self.bytes.len() {
            self.clear();
        } else if self.written > COMPACT_BYTES && self.written > self.bytes.len() / 2 {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.written = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_order_whatever_is_written_at_once() {
        for step in [1, 7, 50_000, 1_000_000] {
            let mut output = OutputBuffer::default();
            let expected: Vec<u8> = (0..200_000_u32).map(|number| number as u8).collect();
            output.appender().extend_from_slice(&expected[..150_000]);
            let mut written = Vec::new();
            let mut appended = false;
            while output.len() > 0 {
                let count = step.min(output.len());
                written.extend_from_slice(&output.pending()[..count]);
                output.consume(step);
                if !appended {
                    output.appender().extend_from_slice(&expected[150_000..]);
                    appended = true;
                }
            }
            assert!(written == expected, "{step} at once");
            assert!(output.pending().is_empty());
        }
    }
}
