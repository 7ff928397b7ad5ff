//! The `toolcrib-hostile` command.

fn main() -> std::process::ExitCode {
    toolcrib_hostile::main()
}
