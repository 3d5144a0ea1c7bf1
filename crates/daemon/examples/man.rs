//! Writes the manual page of ramsliced to stdout, from the same source as its help; for the Debian
//! package.

use clap::CommandFactory;

fn main() -> std::io::Result<()> {
    let manual = clap_mangen::Man::new(ramsliced::args::DaemonArgs::command()).section("8");
    manual.render(&mut std::io::stdout())
}
