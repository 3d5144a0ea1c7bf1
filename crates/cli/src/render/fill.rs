//! Prose folded to the width of the screen, with a hanging indent.

/// Folds `text` at blanks so that lines have at most `width` columns; all but the first begin with
/// `indent` blanks.
///
/// A word that is longer than a line stays whole.
pub fn fill(text: &str, width: usize, indent: usize) -> String {
    let mut lines = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            lines.push('\n');
            lines.push_str(&" ".repeat(indent));
            column = indent;
        } else if column > 0 {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += length;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_folded_at_blanks_and_hang() {
        assert_eq!(fill("net: one two three", 11, 2), "net: one\n  two three");
        assert_eq!(fill("", 10, 2), "");
        assert_eq!(fill("averylongword is here", 5, 1), "averylongword\n is\n here");
    }
}
