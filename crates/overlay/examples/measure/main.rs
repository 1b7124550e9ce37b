//! Measures the overlay in virtual time and prints tables. Everything comes from seeds: two runs print the same.
//!
//! ```text
//! cargo run --release -p thicket-overlay --example measure [bytes] [delay] [repair] [signalling] [growth]
//! ```
//!
//! Without a name it prints all of them.

mod cluster;
mod paper;
mod repair;
mod signalling;

/// A table and its name.
type Part = (&'static str, fn());

fn main() {
    let parts: [Part; 5] = [
        ("bytes", paper::bytes),
        ("delay", paper::delay),
        ("repair", repair::run),
        ("signalling", signalling::run),
        ("growth", signalling::growth),
    ];
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = wanted
        .iter()
        .find(|name| !parts.iter().any(|(part, _)| part == name))
    {
        let names = parts.map(|(name, _)| name).join(", ");
        eprintln!("{unknown:?} is none of {names}");
        std::process::exit(2);
    }
    for (name, print) in parts {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            print();
        }
    }
}
