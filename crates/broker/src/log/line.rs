//! Lines whose fields are known only when they are written: `tracing` wants the names of a line's fields before.
//!
//! Each set of names becomes a call site of its own, which is kept as long as the process runs. Names are texts of the program, so there are few.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use tracing::callsite::{Callsite, Identifier};
use tracing::field::{Field, FieldSet, Value};
use tracing::metadata::Kind;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, dispatcher};

/// Fields of a line, its message included. What exceeds it is left out.
const MOST: usize = 32;
const MESSAGE: &str = "message";
const TARGET: &str = "thicket_broker::event";

/// Level and names, in the order they are written.
type Shape = (Level, Vec<&'static str>);

/// One for the process, like the log.
static SITES: Mutex<Option<HashMap<Shape, &'static Site>>> = Mutex::new(None);

/// Where lines of one shape come from.
struct Site(OnceLock<Metadata<'static>>);

impl Callsite for Site {
    /// Each line asks anew whether it is written.
    fn set_interest(&self, _: Interest) {}

    fn metadata(&self) -> &Metadata<'_> {
        self.known()
    }
}

impl Site {
    fn known(&self) -> &Metadata<'static> {
        self.0.get().expect("set where the site is made")
    }

    fn of(shape: Shape) -> &'static Self {
        let mut sites = SITES.lock().unwrap_or_else(PoisonError::into_inner);
        let sites = sites.get_or_insert_default();
        if let Some(site) = sites.get(&shape) {
            return site;
        }
        let site: &'static Self = Box::leak(Box::new(Self(OnceLock::new())));
        let (level, names) = shape.clone();
        let fields = FieldSet::new(names.leak(), Identifier(site));
        let made = || {
            Metadata::new(
                "event",
                TARGET,
                level,
                None,
                None,
                None,
                fields,
                Kind::EVENT,
            )
        };
        site.0.get_or_init(made);
        sites.insert(shape, site);
        site
    }
}

/// Writes a line. A name that comes twice is written once.
pub(crate) fn write(level: Level, message: &str, fields: &[(&'static str, &dyn Value)]) {
    let mut given: Vec<(&'static str, &dyn Value)> = Vec::with_capacity(fields.len() + 1);
    let message = format_args!("{message}");
    given.push((MESSAGE, &message));
    for field in fields {
        if given.len() < MOST && given.iter().all(|(name, _)| *name != field.0) {
            given.push(*field);
        }
    }
    let names = given.iter().map(|(name, _)| *name).collect();
    let metadata = Site::of((level, names)).known();
    dispatcher::get_default(|dispatch| {
        if !dispatch.enabled(metadata) {
            return;
        }
        let fields: Vec<Field> = metadata.fields().iter().collect();
        let Some(first) = fields.first() else {
            return;
        };
        let mut values: [(&Field, Option<&dyn Value>); MOST] = [(first, None); MOST];
        for (place, (field, (_, value))) in values.iter_mut().zip(fields.iter().zip(&given)) {
            *place = (field, Some(*value));
        }
        dispatch.event(&Event::new(metadata, &metadata.fields().value_set(&values)));
    });
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Kept {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    impl Kept {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().expect("no panic").clone()).expect("text")
        }
    }

    /// What is written meanwhile, as JSON.
    pub(crate) fn json_of(write: impl FnOnce()) -> String {
        let kept = Kept::default();
        let lines = tracing_subscriber::fmt().json().flatten_event(true);
        let subscriber = lines.with_writer(kept.clone()).finish();
        tracing::subscriber::with_default(subscriber, write);
        kept.text()
    }

    fn write_some() {
        let nothing = None::<&str>;
        for here in ["one has \"serve\"", "another"] {
            let fields: [(&'static str, &dyn Value); 5] = [
                ("key", &"routing"),
                ("here", &here),
                ("thread", &3_u64),
                ("nothing", &nothing),
                ("key", &"twice"),
            ];
            write(Level::WARN, "a line", &fields);
        }
        write(Level::DEBUG, "below the level", &[]);
    }

    #[test]
    fn each_field_of_a_line_can_be_queried_in_json() {
        let text = json_of(write_some);
        let each: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        let [one, other] = &*each else {
            panic!("{text}");
        };
        for (name, expected) in [
            ("level", "WARN".into()),
            ("message", "a line".into()),
            ("key", "routing".into()),
            ("here", "one has \"serve\"".into()),
            ("thread", serde_json::Value::from(3)),
            ("nothing", serde_json::Value::Null),
        ] {
            assert_eq!(one[name], expected, "{name}");
        }
        assert_eq!(other["here"], "another");
    }

    #[test]
    fn a_line_of_text_has_its_message_and_its_fields() {
        let kept = Kept::default();
        let lines = tracing_subscriber::fmt().without_time().with_ansi(false);
        let lines = lines.fmt_fields(super::super::text_fields());
        let subscriber = lines.with_target(false).with_writer(kept.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            write_some();
            let (error, lines) = ("no such file", "a\nb \u{1b}[0m");
            tracing::warn!(%error, %lines, peer = %"127.0.0.1:1", count = 2, "a fault");
        });
        assert_eq!(
            kept.text(),
            " WARN a line key=\"routing\" here=\"one has \\\"serve\\\"\" thread=3\n WARN a line key=\"routing\" here=\"another\" thread=3\n WARN a fault error=\"no such file\" lines=\"a\\nb \\u{1b}[0m\" peer=127.0.0.1:1 count=2\n"
        );
    }
}
