//! Finds settings in the text of a TOML file, and words errors about values of the wrong kind.

use std::collections::BTreeMap;
use std::ops::Range;

/// Values longer than this are not repeated in a message, in characters.
const LONGEST: usize = 40;

/// Where each setting is, as in `watermarks.free_low_mib`: its value, or the name of its table.
pub fn spans(text: &str) -> BTreeMap<String, Range<usize>> {
    let mut spans = BTreeMap::new();
    if let Ok(table) = toml::de::DeTable::parse(text) {
        for (key, value) in table.get_ref() {
            let Some(inner) = value.get_ref().as_table() else {
                spans.insert(key.get_ref().to_string(), value.span());
                continue;
            };
            spans.insert(key.get_ref().to_string(), key.span());
            for (name, value) in inner {
                spans.insert(format!("{}.{}", key.get_ref(), name.get_ref()), value.span());
            }
        }
    }
    spans
}

/// The message of an error that [`toml`] found at `span`. For a value of the wrong kind it names
/// the setting and what is allowed there, by `allowed`; other messages stay as they are.
pub fn explain(
    text: &str,
    span: Option<Range<usize>>,
    message: &str,
    allowed: impl Fn(&str) -> Option<String>,
) -> String {
    // Of words, the message says which there are.
    let found = span.filter(|_| !message.starts_with("unknown ")).and_then(|span| {
        let (field, at) = spans(text).into_iter().find(|(_, at)| at.start == span.start)?;
        Some((allowed(&field)?, field, at))
    });
    let Some((allowed, field, at)) = found else { return message.to_owned() };
    match text.get(at).filter(|value| value.chars().count() <= LONGEST && !value.contains('\n')) {
        Some(value) => format!("{field} is {value}: it must be {allowed}"),
        None => format!("{field} must be {allowed}"),
    }
}

/// Text in UTF-8.
///
/// # Errors
/// The place of the first byte that is not UTF-8, and what is wrong with it. The text has the bytes
/// up to there, and replacement characters after it.
pub fn utf8(bytes: Vec<u8>) -> Result<String, (String, Range<usize>, String)> {
    String::from_utf8(bytes).map_err(|error| {
        let start = error.utf8_error().valid_up_to();
        let byte = error.as_bytes()[start];
        let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
        let message = format!("the byte {byte:#04x} is no text: the file must be in UTF-8");
        (text, start..start + char::REPLACEMENT_CHARACTER.len_utf8(), message)
    })
}

/// The allowed values of a policy's setting, in words; `None` if there is no such setting.
pub fn allowed(field: &str) -> Option<String> {
    let words = match field {
        "schema_version" => "1",
        "policy" => {
            "one of \"never\", \"periodic\", \"watermarks\", \"threshold\", \"repair\" and \
             \"governor\""
        }
        "periodic" | "watermarks" | "threshold" | "repair" | "governor" | "limits" => {
            return Some(format!("a table, which begins with [{field}]"));
        }
        "periodic.period_seconds"
        | "watermarks.timeout_seconds"
        | "threshold.period_seconds"
        | "repair.period_seconds" => "a number of at least 0.001",
        "watermarks.free_low_mib"
        | "watermarks.free_high_mib"
        | "watermarks.cache_free_low_mib"
        | "watermarks.cache_free_high_mib"
        | "watermarks.cache_free_low_least_mib"
        | "watermarks.cache_free_high_most_mib"
        | "periodic.empty_seconds"
        | "periodic.wait_while_busy_seconds"
        | "governor.day_seconds"
        | "limits.floor_mib"
        | "limits.burst_reserve_mib"
        | "limits.stall_ms_per_second" => "a number of at least 0",
        "periodic.budget_100cycles" | "repair.budget_100cycles" => {
            "a whole number of 100 cycles, or \"inf\" for no limit"
        }
        "periodic.per_slice" | "periodic.wait_while_growing" => "true or false",
        "periodic.cache" => "\"drop\", \"auto\" or \"keep\"",
        "periodic.max_slices"
        | "threshold.max_slices"
        | "repair.max_slices"
        | "watermarks.lower_after_timeouts" => "a whole number of at least 1, and below 2^32",
        "watermarks.hit_ratio" => "a number above 0 and at most 1",
        "watermarks.least_lookups" => "a whole number of at least 1, and below 2^63",
        "threshold.low" | "threshold.high" => "a number, with 0 < low < high <= 1",
        "threshold.seed" => "a whole number of at least 0, and below 2^63",
        "repair.candidates" => "\"price\" or \"paper\"",
        "repair.max_share" => "a number from 0 to 1",
        "repair.keep_free_slices" => "a whole number of at least 0, and below 2^32",
        "governor.costs" => "\"measured\" or \"predicted\"",
        _ => return None,
    };
    Some(words.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{PolicyConfig, PolicyKind};
    use crate::watermarks_config::WatermarksConfig;

    #[test]
    fn there_are_words_for_every_setting_and_for_no_other_name() {
        let mut config = PolicyConfig::new(PolicyKind::Watermarks);
        config.periodic.max_slices = Some(1);
        config.periodic.empty_seconds = Some(2.0);
        config.periodic.wait_while_busy_seconds = Some(60.0);
        config.limits.stall_ms_per_second = Some(1.0);
        config.watermarks = WatermarksConfig {
            hit_ratio: Some(0.97),
            cache_free_low_least_mib: Some(1.0),
            cache_free_high_most_mib: Some(1.0),
            least_lookups: Some(1),
            lower_after_timeouts: Some(1),
            ..WatermarksConfig::default()
        };
        let all = serde_json::to_value(&config).unwrap();
        let mut settings = 0;
        for (table, value) in all.as_object().unwrap() {
            assert!(allowed(table).is_some(), "{table}");
            for name in value.as_object().into_iter().flat_map(|table| table.keys()) {
                assert!(allowed(&format!("{table}.{name}")).is_some(), "{table}.{name}");
                settings += 1;
            }
        }
        assert!(settings >= 25, "{settings}");
        assert_eq!(allowed("periodic.speed"), None);
    }

    #[test]
    fn bytes_that_are_no_text_are_reported_with_their_place() {
        let (text, at, message) = utf8(b"a = 1\nb = \"\xff\"\n".to_vec()).unwrap_err();
        assert_eq!((at.clone(), &text[at]), (11..14, "\u{fffd}"));
        assert!(message.contains("0xff"), "{message}");
        assert_eq!(utf8("\u{e4}".into()), Ok("\u{e4}".to_owned()));
    }
}
