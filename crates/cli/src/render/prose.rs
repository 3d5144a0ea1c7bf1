//! Text for people: headings, paragraphs folded to the screen, counts and times in words.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;

use super::screen::OutputStyle;

/// Writes a heading, an empty line before it.
pub(crate) fn heading(text: &str, screen: &OutputStyle, out: &mut dyn Write) -> Result<()> {
    writeln!(out)?;
    Ok(writeln!(out, "{}", screen.bold(text))?)
}

/// Says how many more there are than were shown.
pub(crate) fn more(all: usize, shown: usize, out: &mut dyn Write) -> Result<()> {
    if all > shown {
        writeln!(out, "and {} more (--limit {all})", all - shown)?;
    }
    Ok(())
}

/// Text broken at blanks, each line after `indent`.
pub(crate) fn wrapped(
    text: &str,
    indent: &str,
    screen: &OutputStyle,
    out: &mut dyn Write,
) -> Result<()> {
    let width = usize::from(screen.width).min(100).max(indent.len() + 20);
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty()
            && indent.len() + line.chars().count() + 1 + word.chars().count() > width
        {
            writeln!(out, "{indent}{line}")?;
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    Ok(writeln!(out, "{indent}{line}")?)
}

/// `1 page`, `2 pages`.
pub(crate) fn nr_pages(pages: u64) -> String {
    if pages == 1 { "1 page".to_owned() } else { format!("{pages} pages") }
}

/// `48 s`, `12 min`, `3 h 20 min`.
pub(crate) fn short_time(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds < 120 => format!("{seconds} s"),
        seconds if seconds < 7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        assert_eq!(short_time(Duration::from_secs(119)), "119 s");
        assert_eq!(short_time(Duration::from_secs(125)), "2 min");
        assert_eq!(short_time(Duration::from_mins(200)), "3 h 20 min");
    }
}
