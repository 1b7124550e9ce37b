//! Packets with a known verdict: what the specification says must be refused, and what must pass.
//!
//! Packets are written as hexadecimal bytes with three shorthands: `'text'` stands for the bytes of the text, `<text>` for
//! a string with its two bytes of length, and `[ ... ]` for what it holds with its length as a variable byte integer in
//! front. Each case names the statement or section it comes from.

mod acknowledgements;
mod connack;
mod connect;
mod frame;
mod publish;
mod subscriptions;

use thicket_mqtt::ProtocolVersion::{V5, V31, V311};
use thicket_mqtt::{DecodeError, ProtocolVersion, ReasonCode, decode};

/// What must happen to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Accept,
    /// Refused with this code.
    Refuse(ReasonCode),
}

use Verdict::{Accept, Refuse};

const MALFORMED: Verdict = Refuse(ReasonCode::MalformedPacket);
const PROTOCOL: Verdict = Refuse(ReasonCode::ProtocolError);

/// What it is about, the version of the connection, the packet, the verdict.
type Case = (&'static str, ProtocolVersion, &'static str, Verdict);

/// Translates the notation above.
fn bytes(notation: &str) -> Vec<u8> {
    let mut open: Vec<Vec<u8>> = vec![Vec::new()];
    let mut rest = notation;
    while let Some(first) = rest.chars().next() {
        let top = open
            .last_mut()
            .expect("never emptied: `]` is matched below");
        match first {
            ' ' => rest = &rest[1..],
            '[' => {
                open.push(Vec::new());
                rest = &rest[1..];
            }
            ']' => {
                let content = open.pop().expect("one is always there");
                let outer = open.last_mut().expect("`]` without `[`");
                push_length(outer, content.len());
                outer.extend(content);
                rest = &rest[1..];
            }
            '\'' | '<' => {
                let close = if first == '<' { '>' } else { '\'' };
                let (text, after) = rest[1..].split_once(close).expect("closed text");
                if first == '<' {
                    top.extend(u16::try_from(text.len()).expect("short").to_be_bytes());
                }
                top.extend(text.as_bytes());
                rest = after;
            }
            _ => {
                top.push(u8::from_str_radix(&rest[..2], 16).expect("two hexadecimal digits"));
                rest = &rest[2..];
            }
        }
    }
    assert_eq!(open.len(), 1, "unclosed `[` in {notation}");
    open.remove(0)
}

/// A variable byte integer as the specification's algorithm writes it (5.0, 1.5.5).
fn push_length(out: &mut Vec<u8>, mut value: usize) {
    loop {
        let byte = (value % 128) as u8;
        value /= 128;
        out.push(if value > 0 { byte | 128 } else { byte });
        if value == 0 {
            return;
        }
    }
}

fn verdict(version: ProtocolVersion, packet: &[u8]) -> Result<Verdict, String> {
    match decode(packet, version, u32::MAX) {
        Ok(Some((_, len))) if len == packet.len() => Ok(Accept),
        Err(error) => Ok(Refuse(error.reason_code())),
        other => Err(format!("{other:?}")),
    }
}

/// Checks a table, and that no packet is read beyond its end or taken for whole before it.
fn check(cases: &[Case]) {
    let mut wrong = Vec::new();
    for &(name, version, notation, expected) in cases {
        let mut packet = bytes(notation);
        let found = verdict(version, &packet);
        if found != Ok(expected) {
            let outcome = decode(&packet, version, u32::MAX);
            wrong.push(format!(
                "{name}: {version:?} {notation}: expected {expected:?}: {outcome:?}"
            ));
        }
        for len in 0..packet.len() {
            if let Ok(Some(found)) = decode(&packet[..len], version, u32::MAX) {
                wrong.push(format!("{name}: {len} bytes of it are taken for {found:?}"));
            }
        }
        let alone = format!("{:?}", decode(&packet, version, u32::MAX));
        packet.extend_from_slice(&[0xFF; 8]);
        let followed = format!("{:?}", decode(&packet, version, u32::MAX));
        if alone != followed {
            wrong.push(format!(
                "{name}: looks past its end: {alone} became {followed}"
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} wrong:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}

/// The error for a packet that is refused.
fn refusal(version: ProtocolVersion, notation: &str) -> DecodeError {
    let packet = bytes(notation);
    match decode(&packet, version, u32::MAX) {
        Err(error) => error,
        accepted => panic!("{notation}: {accepted:?}"),
    }
}

#[test]
fn the_notation_means_what_it_says() {
    assert_eq!(
        bytes("30 [ <ab> 'c' FF ]"),
        [0x30, 6, 0, 2, b'a', b'b', b'c', 0xFF]
    );
    assert_eq!(bytes("[ 00 [ ] ]"), [2, 0, 0]);
}

#[test]
fn the_tables_hold_the_cases_that_other_codecs_were_measured_with() {
    let tables = [
        acknowledgements::CASES,
        connack::CASES,
        connect::CASES,
        frame::CASES,
        publish::CASES,
        subscriptions::CASES,
    ];
    assert!(tables.iter().map(|table| table.len()).sum::<usize>() >= 107);
}
