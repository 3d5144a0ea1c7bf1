//! The C header, what was generated from it, and what is written by hand in `uapi.rs` agree: every
//! constant, every field, in order.

use std::collections::BTreeMap;
use std::path::Path;

use ramslice_backend::uapi;
use ramslice_types::{PageClass, PageFlag, Reason, SliceState};

/// What the header, or its translation, declares.
#[derive(Default)]
struct HeaderDeclarations {
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

/// The declarations `keyword NAME { body }` of a text without comments.
fn bodies<'a>(text: &'a str, keyword: &str) -> Vec<(&'a str, &'a str)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(&format!("\n{keyword} ")) {
        let declaration = &text[at + keyword.len() + 2..];
        let (name, rest) = declaration.split_once('{').expect("a body");
        let (body, _) = rest.split_once("\n}").expect("the body ends");
        found.push((name.trim(), body));
    }
    found
}

fn parse(text: &str) -> HeaderDeclarations {
    let text = strip_comments(text);
    let mut header = HeaderDeclarations::default();
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

fn header() -> HeaderDeclarations {
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

/// A type of C or of the generated file: `(size in bytes, signed)` of its elements, and their
/// number.
fn layout(text: &str, constants: &BTreeMap<String, u64>) -> ((u64, bool), u64) {
    let text = text.trim_matches(['[', ']']);
    let (element, length) = match text.split_once(['[', ';']) {
        Some((element, length)) => {
            let length = length.trim().trim_end_matches("usize");
            let known = constants.get(length).copied();
            (element, known.unwrap_or_else(|| length.parse().expect("a length")))
        }
        None => (text, 1),
    };
    let kind = match element {
        "__u8" => (1, false),
        "char" | "core::ffi::c_char" => (1, true),
        "__u16" => (2, false),
        "__s16" => (2, true),
        "__u32" => (4, false),
        "__s32" => (4, true),
        "__u64" => (8, false),
        other => panic!("this test does not know the type `{other}`"),
    };
    (kind, length)
}

/// What `uapi_bindings.rs` declares; constants without an enum are its defines.
fn generated() -> HeaderDeclarations {
    let text = include_str!("../src/patched/uapi_bindings.rs");
    let mut found = HeaderDeclarations::default();
    for line in text.lines().filter_map(|line| line.strip_prefix("pub const ")) {
        let (name, rest) = line.split_once(": ").expect("a type");
        let (kind, value) = rest.trim_end_matches(';').split_once(" = ").expect("a value");
        if kind.starts_with("ramslice_") {
            let value = value.parse().expect("a number");
            found.enums.entry(kind.to_owned()).or_default().push((name.to_owned(), value));
        } else {
            found.defines.insert(name.to_owned(), value.to_owned());
        }
    }
    for (name, body) in bodies(text, "pub struct") {
        let fields = body.split(',').map(str::trim).filter(|field| !field.is_empty());
        let fields = fields.map(|field| {
            let field = field.strip_prefix("pub ").expect("a public field");
            let (name, kind) = field.split_once(": ").expect("name and type");
            (kind.to_owned(), name.to_owned())
        });
        found.structs.insert(name.to_owned(), fields.collect());
    }
    found
}

/// The constants of all enums, and the defines that are numbers.
fn constants(declarations: &HeaderDeclarations) -> BTreeMap<String, u64> {
    let defines = declarations.defines.iter();
    let numbers = defines.filter_map(|(name, text)| Some((name.clone(), text.parse().ok()?)));
    declarations.enums.values().flatten().cloned().chain(numbers).collect()
}

#[test]
fn every_enum_agrees_with_the_header() {
    let header = header();
    assert_eq!(header.enums.len(), 5);
    assert_eq!(header.enums, generated().enums);
}

#[test]
fn every_struct_agrees_with_the_header() {
    let laid_out = |declarations: HeaderDeclarations| {
        let constants = constants(&declarations);
        let fields = |fields: Vec<(String, String)>| {
            let fields = fields.into_iter().map(|(kind, name)| (layout(&kind, &constants), name));
            fields.collect::<Vec<_>>()
        };
        let structs = declarations.structs.into_iter();
        structs.map(|(name, list)| (name, fields(list))).collect::<BTreeMap<_, _>>()
    };
    let theirs = laid_out(header());
    assert_eq!(theirs.len(), 9);
    assert_eq!(theirs, laid_out(generated()));
}

#[test]
fn no_struct_has_padding_that_another_compiler_could_place_elsewhere() {
    let sizes = BTreeMap::from([
        ("ramslice_info", size_of::<uapi::ramslice_info>()),
        ("ramslice_zone_info", size_of::<uapi::ramslice_zone_info>()),
        ("ramslice_slice_info", size_of::<uapi::ramslice_slice_info>()),
        ("ramslice_snapshot", size_of::<uapi::ramslice_snapshot>()),
        ("ramslice_request", size_of::<uapi::ramslice_request>()),
        ("ramslice_page_run", size_of::<uapi::ramslice_page_run>()),
        ("ramslice_pages", size_of::<uapi::ramslice_pages>()),
        ("ramslice_segment", size_of::<uapi::ramslice_segment>()),
        ("ramslice_segment_list", size_of::<uapi::ramslice_segment_list>()),
    ]);
    for (name, fields) in header().structs {
        let mut end = 0;
        for (kind, field) in fields {
            let ((bytes, _), length) = layout(&kind, &constants(&header()));
            assert_eq!(end % bytes, 0, "{name}.{field} follows a gap");
            end += bytes * length;
        }
        assert_eq!(sizes[name.as_str()] as u64, end, "{name} ends with padding");
    }
}

#[test]
fn every_define_agrees_with_the_header() {
    let by_hand = [
        ("RAMSLICE_UNLIMITED", uapi::RAMSLICE_UNLIMITED),
        ("RAMSLICE_ALL_SLICES", uapi::RAMSLICE_ALL_SLICES.into()),
        ("RAMSLICE_IOC_INFO", uapi::RAMSLICE_IOC_INFO.into()),
        ("RAMSLICE_IOC_ZONE", uapi::RAMSLICE_IOC_ZONE.into()),
        ("RAMSLICE_IOC_SNAPSHOT", uapi::RAMSLICE_IOC_SNAPSHOT.into()),
        ("RAMSLICE_IOC_REQUEST", uapi::RAMSLICE_IOC_REQUEST.into()),
        ("RAMSLICE_IOC_PAGES", uapi::RAMSLICE_IOC_PAGES.into()),
        ("RAMSLICE_IOC_SEGMENTS", uapi::RAMSLICE_IOC_SEGMENTS.into()),
    ];
    let values = |declarations: HeaderDeclarations| {
        let defines = declarations.defines.into_iter();
        defines.map(|(name, text)| (name, evaluate(&text))).collect::<BTreeMap<_, _>>()
    };
    let mut ours = values(generated());
    for (name, value) in by_hand {
        assert_eq!(ours.insert(name.to_owned(), value), None, "{name} is generated, too");
    }
    assert_eq!(values(header()), ours);
}

#[test]
fn every_reason_of_the_header_has_a_text_under_its_name() {
    let names = &header().enums["ramslice_reason"];
    let of_kernel = Reason::ALL.iter().filter(|reason| reason.raw() < Reason::FIRST_OF_STOCK);
    assert_eq!(names.len(), of_kernel.count() + 2, "all but NONE and NR_REASONS");
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
    let header = header();
    let flags = header.defines.iter().filter(|(name, _)| name.starts_with("RAMSLICE_RUN_"));
    let mut flags: Vec<_> = flags.map(|(name, text)| (evaluate(text), name)).collect();
    flags.sort();
    assert_eq!(flags.len(), PageFlag::ALL.len());
    for (bit, (value, name)) in flags.into_iter().enumerate() {
        assert_eq!(value, 1 << bit);
        let ours = serde_json::to_string(&PageFlag::ALL[bit]).unwrap().replace(['"', '-'], "");
        assert_eq!(lower(name, "RAMSLICE_RUN_"), ours);
    }
    let classes = &header.enums["ramslice_page_class"];
    assert_eq!(classes.len(), PageClass::ALL.len() + 1, "all but NR_PAGE_CLASSES");
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
        let (_, value) = classes.iter().find(|(known, _)| *known == name).unwrap();
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
