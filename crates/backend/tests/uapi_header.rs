//! The C header and `uapi.rs` say the same: every constant, every field, in order.

use std::collections::BTreeMap;
use std::path::Path;

use ramslice_backend::uapi;
use ramslice_types::{PageClass, PageFlag, Reason, SliceState};

/// What the header declares.
#[derive(Default)]
struct Header {
    /// enum name → (constant, value), in order.
    enums: BTreeMap<String, Vec<(String, u64)>>,
    /// struct name → (C type with `[N]` for arrays, field), in order.
    structs: BTreeMap<String, Vec<(String, String)>>,
    /// Every #define with a value → its text.
    defines: BTreeMap<String, String>,
}

fn strip_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("/*") {
        out.push_str(&rest[..start]);
        let end = rest[start..].find("*/").expect("a comment ends");
        rest = &rest[start + end + 2..];
    }
    out + rest
}

/// The declarations `keyword NAME { body };` of a header without comments.
fn bodies<'a>(text: &'a str, keyword: &str) -> Vec<(&'a str, &'a str)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(&format!("\n{keyword} ")) {
        let declaration = &text[at + keyword.len() + 2..];
        let (name, rest) = declaration.split_once('{').expect("a body");
        let (body, _) = rest.split_once("};").expect("the body ends");
        found.push((name.trim(), body));
    }
    found
}

fn parse(text: &str) -> Header {
    let text = strip_comments(text);
    let mut header = Header::default();
    for (name, body) in bodies(&text, "enum") {
        let mut next = 0;
        let mut constants = Vec::new();
        for item in body.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (constant, value) = match item.split_once('=') {
                Some((constant, value)) => {
                    (constant.trim(), value.trim().parse().expect("a number"))
                }
                None => (item, next),
            };
            constants.push((constant.to_owned(), value));
            next = value + 1;
        }
        header.enums.insert(name.to_owned(), constants);
    }
    for (name, body) in bodies(&text, "struct") {
        let fields =
            body.split(';').map(str::trim).filter(|field| !field.is_empty()).map(|field| {
                let (ctype, name) = field.rsplit_once(char::is_whitespace).expect("type and name");
                match name.split_once('[') {
                    None => (ctype.trim().to_owned(), name.to_owned()),
                    Some((name, length)) => (format!("{}[{length}", ctype.trim()), name.to_owned()),
                }
            });
        header.structs.insert(name.to_owned(), fields.collect());
    }
    for line in text.lines().filter_map(|line| line.trim().strip_prefix("#define ")) {
        if let Some((name, value)) = line.trim().split_once(char::is_whitespace) {
            header.defines.insert(name.to_owned(), value.trim().to_owned());
        }
    }
    header
}

fn header() -> Header {
    let path = Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap())
        .join("../../kernel/files/include/uapi/linux/ramslice.h");
    parse(
        &std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display())),
    )
}

/// The value of a #define: a number, a shift, a complement or an ioctl number.
fn evaluate(text: &str) -> u64 {
    let text = text.trim().trim_start_matches('(').trim_end_matches(')').trim();
    if let Some(ioctl) = text.strip_prefix("_IO(") {
        let (magic, number) = ioctl.split_once(',').expect("two arguments");
        assert_eq!(magic.trim(), "RAMSLICE_IOC_MAGIC");
        return evaluate(number);
    }
    if let Some((base, shift)) = text.split_once("<<") {
        return evaluate(base) << evaluate(shift);
    }
    if let Some(inner) = text.strip_prefix('~') {
        let wide = inner.ends_with("ULL");
        return !evaluate(inner) & if wide { u64::MAX } else { u32::MAX.into() };
    }
    if let Some(inner) = text.strip_prefix('-') {
        return evaluate(inner).wrapping_neg();
    }
    let digits = text.trim_end_matches(['U', 'L']);
    match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    }
    .unwrap_or_else(|_| panic!("`{text}` is not a value this test understands"))
}

/// How a C type is written in `uapi.rs`.
fn rust_type(ctype: &str) -> String {
    let (element, length) = match ctype.split_once('[') {
        Some((element, length)) => (element, Some(length.trim_end_matches(']'))),
        None => (ctype, None),
    };
    let element = match element {
        "__u8" | "char" => "u8",
        "__u16" => "u16",
        "__s16" => "i16",
        "__u32" => "u32",
        "__s32" => "i32",
        "__u64" => "u64",
        other => panic!("C type `{other}` has no Rust type in this test"),
    };
    length.map_or_else(|| element.to_owned(), |length| format!("[{element}; {length}]"))
}

fn owned(list: &[(&str, u64)]) -> Vec<(String, u64)> {
    list.iter().map(|&(name, value)| (name.to_owned(), value)).collect()
}

#[test]
fn every_enum_agrees_with_the_header() {
    let ours = BTreeMap::from([
        ("ramslice_state".to_owned(), owned(uapi::STATES)),
        ("ramslice_reason".to_owned(), owned(uapi::REASONS)),
        ("ramslice_counter".to_owned(), owned(uapi::COUNTERS)),
        ("ramslice_op".to_owned(), owned(uapi::OPS)),
        ("ramslice_page_class".to_owned(), owned(uapi::PAGE_CLASSES)),
    ]);
    assert_eq!(header().enums, ours);
}

#[test]
fn every_struct_agrees_with_the_header() {
    let ours: BTreeMap<String, Vec<(String, String)>> = uapi::STRUCTS
        .iter()
        .map(|(name, _, fields)| {
            let fields =
                fields.iter().map(|f| (f.rust_type.to_owned(), f.name.to_owned())).collect();
            ((*name).to_owned(), fields)
        })
        .collect();
    let theirs: BTreeMap<String, Vec<(String, String)>> = header()
        .structs
        .into_iter()
        .map(|(name, fields)| {
            let fields = fields.into_iter().map(|(ctype, field)| (rust_type(&ctype), field));
            (name, fields.collect())
        })
        .collect();
    assert_eq!(theirs, ours);
}

#[test]
fn no_struct_has_padding_that_another_compiler_could_place_elsewhere() {
    for (name, size, fields) in uapi::STRUCTS {
        let mut end = 0;
        for field in *fields {
            assert_eq!(field.offset, end, "{name}.{} follows a gap", field.name);
            end += match field.rust_type {
                "u8" => 1,
                "u16" | "i16" => 2,
                "u32" | "i32" => 4,
                "u64" => 8,
                "[u8; 16]" => 16,
                "[u8; 32]" => 32,
                "[u32; RAMSLICE_NR_COUNTERS]" => 4 * uapi::RAMSLICE_NR_COUNTERS,
                other => panic!("{other} has no size in this test"),
            };
        }
        assert_eq!(*size, end, "{name} ends with padding");
    }
}

#[test]
fn every_define_agrees_with_the_header() {
    let ours: BTreeMap<String, u64> = [
        uapi::SLICE_FLAGS,
        uapi::REQUEST_FLAGS,
        uapi::RUN_FLAGS,
        uapi::LIMITS,
        uapi::WILDCARDS,
        uapi::IOCTLS,
    ]
    .iter()
    .flat_map(|list| owned(list))
    .collect();
    let theirs: BTreeMap<String, u64> =
        header().defines.iter().map(|(name, text)| (name.clone(), evaluate(text))).collect();
    assert_eq!(theirs, ours);
}

#[test]
fn every_reason_of_the_header_has_a_text_under_its_name() {
    let names = &header().enums["ramslice_reason"];
    assert_eq!(names.len(), Reason::ALL.len() + 2, "all but NONE and NR_REASONS");
    for (name, value) in names {
        if let Some(name) = name.strip_prefix("RAMSLICE_REASON_") {
            let code = name.to_ascii_lowercase().replace('_', "-");
            assert_eq!(Reason::from_raw(u32::try_from(*value).unwrap()).code(), code);
        }
    }
}

#[test]
fn every_state_of_the_header_has_its_name() {
    for (name, value) in &header().enums["ramslice_state"] {
        if name == "RAMSLICE_NR_STATES" {
            continue;
        }
        let state = SliceState::from_raw(u8::try_from(*value).unwrap()).expect("a state");
        assert_eq!(name.strip_prefix("RAMSLICE_").unwrap().to_ascii_lowercase(), state.name());
    }
}

#[test]
fn classes_and_flags_of_pages_have_the_headers_numbers() {
    let lower = |name: &str, prefix| name.strip_prefix(prefix).unwrap().to_ascii_lowercase();
    assert_eq!(uapi::RUN_FLAGS.len(), PageFlag::ALL.len());
    for (bit, (name, value)) in uapi::RUN_FLAGS.iter().enumerate() {
        assert_eq!(*value, 1 << bit);
        let ours = serde_json::to_string(&PageFlag::ALL[bit]).unwrap().replace(['"', '-'], "");
        assert_eq!(lower(name, "RAMSLICE_RUN_"), ours);
    }
    assert_eq!(uapi::PAGE_CLASSES.len(), PageClass::ALL.len() + 1, "all but NR_PAGE_CLASSES");
    let named = [
        ("FREE", PageClass::Free),
        ("ANON", PageClass::Anonymous),
        ("SWAP", PageClass::SwapCache),
        ("PAGETABLE", PageClass::PageTable),
        ("KERNEL", PageClass::Kernel),
        ("OFF", PageClass::Off),
    ];
    for (name, class) in named {
        let name = format!("RAMSLICE_PAGE_{name}");
        let (_, value) = uapi::PAGE_CLASSES.iter().find(|(known, _)| *known == name).unwrap();
        assert_eq!(PageClass::from_raw(u8::try_from(*value).unwrap()), class);
    }
}

#[test]
fn a_changed_header_is_noticed() {
    let header = parse(
        "\nenum x {\n\tA = 3, /* b, c */\n\tB,\n};\nstruct s {\n\t__u16 a;\n\tchar b[4];\n};\n",
    );
    assert_eq!(header.enums["x"], [("A".to_owned(), 3), ("B".to_owned(), 4)]);
    assert_eq!(header.structs["s"][1], ("char[4]".to_owned(), "b".to_owned()));
}
