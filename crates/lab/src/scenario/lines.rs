//! The line in the file that an error refers to.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Prepends the line number to a reason that begins with a key, such as `workload.qos: 7 is ...`, `fault.1.site: ...` (the second fault) or
/// `system.attach of NAME: ...`. A key that is not in the file gets the line of its innermost table that is; a reason without a key is unchanged.
pub(crate) fn with_line(text: &str, reason: String) -> String {
    match line_of(text, &reason) {
        Some(line) => format!("line {line}, {reason}"),
        None => reason,
    }
}

fn line_of(text: &str, reason: &str) -> Option<usize> {
    let (subject, _) = reason.split_once(':')?;
    let (key, name) = match subject.split_once(" of ") {
        Some((key, name)) => (key, Some(name)),
        None => (subject, None),
    };
    let whole = DeTable::parse(text).ok()?;
    let mut table = whole.get_ref();
    let mut at = None;
    let mut parts = key.split('.').peekable();
    while let Some(part) = parts.next() {
        let Some(value) = table.get(part) else { break };
        at = Some(start(value));
        table = match value.get_ref() {
            DeValue::Table(inner) => inner,
            DeValue::Array(all) => {
                let number = parts.next_if(|part| part.parse::<usize>().is_ok());
                let is_it = |one: &&Spanned<DeValue<'_>>| {
                    let own = one
                        .get_ref()
                        .get("name")
                        .and_then(|name| name.get_ref().as_str());
                    name.is_none() || own == name
                };
                let one = match number.and_then(|number| number.parse::<usize>().ok()) {
                    Some(number) => all.get(number),
                    None => all.iter().find(is_it),
                };
                let Some(one) = one else { break };
                // A table under a header begins with its brackets, another value with itself.
                at = Some(start(one));
                let Some(inner) = one.get_ref().as_table() else {
                    break;
                };
                inner
            }
            _ => break,
        };
    }
    Some(1 + text.get(..at?)?.matches('\n').count())
}

fn start(value: &Spanned<DeValue<'_>>) -> usize {
    value.span().start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_line_of_its_key() {
        let text = "seed = 1\n[[system]]\nname = \"a\"\n[[system]]\nname = \"b\"\nattach = \"x\"\n[workload]\nqos = 7\n";
        for (reason, line) in [
            ("seed: 1 is bad", Some(1)),
            ("workload.qos: 7 is bad", Some(8)),
            ("workload: give rate_per_s", Some(7)),
            ("system.attach of b: bad", Some(6)),
            ("system.max_sessions of a: bad", Some(2)),
            ("system.1.attach: bad", Some(6)),
            ("system.0.settings.x: bad", Some(2)),
            ("there is no [[system]] to measure", None),
            ("network.sites: 0 is bad", None),
        ] {
            let expected = line.map_or(reason.to_owned(), |line| format!("line {line}, {reason}"));
            assert_eq!(with_line(text, reason.to_owned()), expected);
        }
    }
}
