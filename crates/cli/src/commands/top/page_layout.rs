//! The lines of `ramslice top`, for a screen of any size: what matters most stays when room gets
//! short.

use ramslice_types::{Bytes, MachineState, Pages, Slice, SliceState};

use super::model::TopModel;
use crate::commands::{slices, status};
use crate::render::{OutputStyle, ScreenCell, bar, fill, legend, overview, short_time};

/// Lines of the list below which it is left out: its head and two slices.
const LIST_LINES: usize = 3;
/// Lines that the map gets beyond that before sums that stand elsewhere, too.
const MAP_MORE: usize = 4;
/// Lines of the map below which it is left out.
const MAP_LINES: usize = 3;

/// How a line of text stands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextTone {
    Plain,
    Bold,
    Dim,
    /// The selected slice in the list.
    Selected,
}

/// A line.
#[derive(Debug, Clone)]
pub(super) enum ScreenRow {
    Text(TextTone, String),
    Cells(Vec<ScreenCell>),
}

/// A part of the screen, and its place in the order in which room is given.
struct ScreenPart {
    rank: u8,
    rows: Vec<ScreenRow>,
    /// Better the first so many lines than nothing.
    min_lines: usize,
}

impl ScreenPart {
    /// Shown as a whole or not at all.
    fn new(rank: u8, rows: Vec<ScreenRow>) -> Self {
        Self { rank, min_lines: rows.len(), rows }
    }

    /// May end early.
    fn with_min_lines(self, min_lines: usize) -> Self {
        Self { min_lines, ..self }
    }
}

/// The screen, at most `height` lines. Lines may be longer than `width` and are to be cut.
pub(super) fn rows(top: &TopModel, width: u16, height: usize) -> Vec<ScreenRow> {
    let screen = OutputStyle { width, ..top.screen };
    let keys = ScreenRow::Text(TextTone::Dim, keys(top, usize::from(width)));
    if top.help {
        let mut rows = text(TextTone::Plain, HELP_LINES, usize::from(width));
        rows.truncate(height.saturating_sub(1));
        rows.push(keys);
        return rows;
    }
    let columns = usize::from(width).max(20);
    let machine = top.machine();
    let census = &top.census;
    let legend = legend(&screen, &census.pages, machine.info.page_bytes, columns);
    let governor = top.governor();
    let said = |words: &[String]| -> Vec<ScreenRow> {
        words.iter().flat_map(|words| text(TextTone::Plain, words, columns)).collect()
    };
    let mut parts = vec![
        ScreenPart::new(0, head(top, columns)).with_min_lines(0),
        ScreenPart::new(4, without_ramslice(top, columns)),
        ScreenPart::new(1, text(TextTone::Plain, &status::totals(machine), columns))
            .with_min_lines(0),
        ScreenPart::new(4, reported(top, columns)),
        ScreenPart::new(8, not_given(machine, columns)),
        ScreenPart::new(9, text(TextTone::Plain, &status::slice_counts(census), columns)),
        ScreenPart::new(7, vec![ScreenRow::Cells(bar(&screen, &census.pages, columns))]),
        ScreenPart::new(8, legend.into_iter().map(ScreenRow::Cells).collect()),
        // Rates without sums.
        ScreenPart::new(3, rates(top, columns)).with_min_lines(2),
        ScreenPart::new(10, page_cache(top, columns)),
        ScreenPart::new(10, history(top, columns)),
        ScreenPart::new(6, joules(top, columns)),
        ScreenPart::new(4, said(&governor.decisions)).with_min_lines(1),
    ];
    // As many as there is room for.
    parts.extend(governor.details.chunks(1).map(|words| ScreenPart::new(8, said(words))));
    parts.extend(governor.notes.chunks(1).map(|words| ScreenPart::new(11, said(words))));
    parts.push(ScreenPart::new(5, selected(top, columns)));
    // The map and the list take what is left; their least comes before what is only nice to have.
    let mut room = height.saturating_sub(1);
    let (mut map, mut list) = (0, 0);
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|&at| parts[at].rank);
    for at in order {
        if parts[at].rank == 3 && room >= MAP_LINES {
            (map, room) = (MAP_LINES, room - MAP_LINES);
        }
        if parts[at].rank == 6 && room >= LIST_LINES {
            (list, room) = (LIST_LINES, room - LIST_LINES);
        }
        // A map by single slices, where it takes no more, is worth more than sums that stand
        // elsewhere, too.
        if parts[at].rank == 9 && map > 0 {
            let more = room.min(MAP_MORE);
            (map, room) = (map + more, room - more);
        }
        match room.checked_sub(parts[at].rows.len()) {
            Some(left) => room = left,
            None if room >= parts[at].min_lines => {
                parts[at].rows.truncate(room);
                room = 0;
            }
            None => parts[at].rows.clear(),
        }
    }
    if map > 0 {
        map += if list > 0 { room / 2 } else { room };
    }
    let mut picture =
        if map > 0 { overview(machine, &screen, width, map, top.cursor()) } else { Vec::new() };
    picture.truncate(map);
    if list > 0 {
        let taken = parts.iter().map(|part| part.rows.len()).sum::<usize>() + picture.len();
        list = height.saturating_sub(1 + taken);
    }
    // The selected slice's words belong below the list.
    let words = parts.pop().map_or_else(Vec::new, |part| part.rows);
    let mut rows: Vec<ScreenRow> = parts.into_iter().flat_map(|part| part.rows).collect();
    rows.extend(picture.into_iter().map(ScreenRow::Cells));
    rows.extend(table(top, list));
    rows.extend(words);
    rows.truncate(height.saturating_sub(1));
    rows.push(keys);
    rows
}

/// `text` folded to lines.
fn text(tone: TextTone, text: &str, columns: usize) -> Vec<ScreenRow> {
    text.lines()
        .flat_map(|line| match line {
            "" => vec![String::new()],
            // Columns of the help stay where they are.
            line if line.starts_with(' ') => vec![line.to_owned()],
            line => fill(line, columns, 2).lines().map(str::to_owned).collect(),
        })
        .map(|line| ScreenRow::Text(tone, line))
        .collect()
}

fn head(top: &TopModel, columns: usize) -> Vec<ScreenRow> {
    let mut rows = text(TextTone::Bold, &status::headline(top.machine()), columns);
    if let Some(problem) = top.age_note() {
        rows.extend(text(TextTone::Bold, &problem, columns));
    }
    rows
}

fn without_ramslice(top: &TopModel, columns: usize) -> Vec<ScreenRow> {
    top.without_ramslice().map_or_else(Vec::new, |note| text(TextTone::Bold, &note, columns))
}

/// Why the memory above may be less than `MemTotal`.
fn not_given(machine: &MachineState, columns: usize) -> Vec<ScreenRow> {
    status::not_given(machine).map_or_else(Vec::new, |words| text(TextTone::Plain, &words, columns))
}

/// In a virtual machine that gives memory back: how much of it.
fn reported(top: &TopModel, columns: usize) -> Vec<ScreenRow> {
    let info = &top.machine().info;
    if !info.reports_to_host() {
        return Vec::new();
    }
    let bytes = |pages: Pages| pages.bytes(info.page_bytes);
    let words = format!(
        "reported to the host: {}; {} stay on",
        bytes(info.reported_pages()),
        bytes(info.on_pages())
    );
    text(TextTone::Plain, &words, columns)
}

fn keys(top: &TopModel, columns: usize) -> String {
    let every = match () {
        () if top.source.is_saved() => "a saved machine".to_owned(),
        () if top.source.is_recording() && top.source.is_finished() => {
            "end of recording".to_owned()
        }
        () if top.is_paused => "paused".to_owned(),
        () if top.is_observing && top.screen.unicode => "looking…".to_owned(),
        () if top.is_observing => "looking".to_owned(),
        () => format!("every {:?}", top.interval),
    };
    let order = top.sort.name();
    let long =
        format!("q quit  ? help  p pause  +/- period  s sort ({order})  Enter explain  [{every}]");
    let least = format!("q quit  ? help  [{every}]");
    if long.chars().count() <= columns { long } else { least }
}

/// What was done: a row for the last period, a second row for all of it.
fn rates(top: &TopModel, columns: usize) -> Vec<ScreenRow> {
    // In a saved machine no time passes.
    if top.source.is_saved() && top.rate.is_none() {
        return Vec::new();
    }
    let page = top.machine().info.page_bytes;
    let mut rows = vec![ScreenRow::Text(
        TextTone::Bold,
        format!(
            "{:<14}{:>7}{:>7}{:>11}{:>13}{:>13}{:>14}",
            "slices", "off", "woken", "by demand", "moved", "dropped", "cycles"
        ),
    )];
    let second = top.rate.unwrap_or_default();
    let per = |value: u64| {
        let value = value as f64 / second.elapsed.as_secs_f64();
        if value == 0.0 || value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
    };
    let unknown = || "-".to_owned();
    let line = |what: &str, cells: [String; 6]| {
        let [off, woken, demand, moved, dropped, cycles] = cells;
        ScreenRow::Text(
            TextTone::Plain,
            format!("{what:<14}{off:>7}{woken:>7}{demand:>11}{moved:>13}{dropped:>13}{cycles:>14}"),
        )
    };
    let bytes = |pages: Pages| pages.bytes(page);
    rows.push(match top.rate {
        None => line("per second", std::array::from_fn(|_| unknown())),
        Some(last) => {
            let seconds = last.elapsed.as_secs_f64();
            let rate = |pages: Pages| Bytes((bytes(pages).0 as f64 / seconds) as u64).to_string();
            let [moved, dropped, cycles] = last.work.map_or_else(
                || std::array::from_fn(|_| unknown()),
                |work| {
                    [
                        rate(work.migrated),
                        rate(work.dropped),
                        short(100.0 * work.cpu.0 as f64 / seconds),
                    ]
                },
            );
            let cells = [
                per(last.slices_off),
                per(last.slices_woken),
                per(last.woken_by_demand),
                moved,
                dropped,
                cycles,
            ];
            line("per second", cells)
        }
    });
    let total = top.total;
    let [moved, dropped, cycles] = total.work.map_or_else(
        || std::array::from_fn(|_| unknown()),
        |work| {
            [
                bytes(work.migrated).to_string(),
                bytes(work.dropped).to_string(),
                short(100.0 * work.cpu.0 as f64),
            ]
        },
    );
    if top.rate.is_some() {
        let cells = [
            total.slices_off.to_string(),
            total.slices_woken.to_string(),
            total.woken_by_demand.to_string(),
            moved,
            dropped,
            cycles,
        ];
        rows.push(line(&format!("in {}", short_time(total.elapsed)), cells));
    }
    if let Some(problem) = top.counters_error.as_ref().filter(|_| !top.source.is_saved()) {
        rows.extend(text(TextTone::Dim, &format!("moved, dropped, cycles: {problem}"), columns));
    }
    rows
}

/// A large number in three or four places: `950`, `12.3k`, `4.56M`.
fn short(value: f64) -> String {
    let step = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match step.iter().find(|(size, _)| value >= *size) {
        Some((size, letter)) => format!("{:.1}{letter}", value / size),
        None => format!("{value:.0}"),
    }
}

/// The share of memory that was off, over the looks so far.
fn history(top: &TopModel, columns: usize) -> Vec<ScreenRow> {
    const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    if !top.screen.unicode || top.history.len() < 2 {
        return Vec::new();
    }
    let shown = columns.saturating_sub(22);
    let skip = top.history.len().saturating_sub(shown);
    let line: String = top
        .history
        .iter()
        .skip(skip)
        .map(|share| EIGHTHS[((share * 8.0).round() as usize).min(8)])
        .collect();
    let now = top.history.back().copied().unwrap_or_default();
    vec![ScreenRow::Text(TextTone::Plain, format!("off {:>3.0} % of memory  {line}", now * 100.0))]
}

fn joules(top: &TopModel, columns: usize) -> Vec<ScreenRow> {
    top.energy_sums
        .as_ref()
        .map_or_else(Vec::new, |joules| text(TextTone::Plain, &joules.words(), columns))
}

/// In a saved machine nothing is looked up.
fn page_cache(top: &TopModel, columns: usize) -> Vec<ScreenRow> {
    if top.source.is_saved() {
        return Vec::new();
    }
    text(TextTone::Plain, &top.page_cache.words(), columns)
}

fn selected(top: &TopModel, columns: usize) -> Vec<ScreenRow> {
    let Some(slice) = top.slice().filter(|_| top.has_cursor) else { return Vec::new() };
    let start = top.machine().info.extents(slice.id).start;
    let words = format!("slice {} at {start:#x}: {}", slice.id, top.words());
    text(TextTone::Plain, &words, columns)
}

/// The list of slices in `lines` lines, so that the selected one is seen.
fn table(top: &TopModel, lines: usize) -> Vec<ScreenRow> {
    let Some(shown) = lines.checked_sub(1).filter(|&shown| shown > 0) else { return Vec::new() };
    let sorted = top.sorted();
    let at = sorted.iter().position(|slice| slice.id == top.selected_slice).unwrap_or(0);
    // Where nothing scrolls, the last line says how many slices are left out.
    let shown = if top.has_cursor || sorted.len() <= shown { shown } else { shown - 1 };
    let left_out = if top.has_cursor { 0 } else { sorted.len().saturating_sub(shown) };
    let first = at.saturating_sub(shown / 2).min(sorted.len().saturating_sub(shown));
    let mut rows = vec![ScreenRow::Text(
        TextTone::Bold,
        format!(
            "{:>7} {:<7} {:<11} {:>8} {:>6} {:>8} {:>7} {:>9}  reason",
            "slice", "zone", "state", "price", "free", "freeable", "movable", "unmovable"
        ),
    )];
    rows.extend(sorted.iter().skip(first).take(shown).map(|slice| {
        let chosen = top.has_cursor && slice.id == top.selected_slice;
        // The mark says it where nothing can be inverted.
        let (tone, mark) = if chosen { (TextTone::Selected, '>') } else { (TextTone::Plain, ' ') };
        ScreenRow::Text(tone, format!("{mark}{}", row(top, slice)))
    }));
    if left_out > 0 {
        let slices = crate::request_report::slices(u32::try_from(left_out).unwrap_or(u32::MAX));
        let words = format!("{slices} left out: `ramslice slices` lists all");
        rows.push(ScreenRow::Text(TextTone::Plain, words));
    }
    rows
}

fn row(top: &TopModel, slice: &Slice) -> String {
    let machine = top.machine();
    let info = &machine.info;
    let parts = slice.composition(info.slice_pages());
    let known = matches!(slice.state, SliceState::Online | SliceState::Emptying);
    let size =
        |pages: Pages| if known { slices::mib(pages, info.page_bytes) } else { "-".to_owned() };
    let price = match slice.finite_price() {
        _ if slice.state != SliceState::Online => "-".to_owned(),
        Some(price) => price.to_string(),
        None if top.screen.unicode => "∞".to_owned(),
        None => "inf".to_owned(),
    };
    let reason = match slice.reason {
        ramslice_types::Reason::None => String::new(),
        reason => reason.code(),
    };
    format!(
        "{:>6} {:<7} {:<11} {price:>8} {:>6} {:>8} {:>7} {:>9}  {reason}",
        slice.id,
        machine.zone_name(slice),
        slice.state,
        size(parts.free),
        size(parts.freeable),
        size(parts.movable),
        size(parts.unmovable),
    )
    .trim_end()
    .to_owned()
}

/// What the help screen says.
const HELP_LINES: &str = "\
ramslice top

  arrows, j k, PgUp PgDn, Home End   select a slice; left and right: by address
  Enter        look at its pages (root)       Esc   back
  s            sort by address, price, used memory, state
  p, blank     pause                          + -   longer, shorter period
  q, Ctrl-C    quit                           Ctrl-L   draw again

In the map a cell or tile is a slice, or several where the screen is too small; the selected one \
is marked.
off: slices switched off. woken: for any reason. by demand: by the kernel, for an allocation that \
would have had to wait, swap or fail.
moved: pages that went to other slices. dropped: clean page cache. cycles: CPU time of emptying. \
`-`: not known.
look-up hit ratio: of the pages that reads and faults of files looked up, those that were in the \
page cache. disk-free ratio: those that no disk had to bring, also ahead of reading.
c: the part of free memory that is off. Sizes in the list are MiB; prices are units of 100 CPU \
cycles, inf: cannot be emptied now.
More: ramslice top --help, ramslice map --help, ramslice explain SLICE";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            (short(950.0), short(12_340.0), short(4.56e9)),
            ("950".into(), "12.3k".into(), "4.6G".into())
        );
    }
}
