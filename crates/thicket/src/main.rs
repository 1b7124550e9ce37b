//! The program `thicket`.

fn main() -> std::process::ExitCode {
    thicket::main()
}
